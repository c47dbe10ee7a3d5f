"""A study's dashboard in Weights & Biases: curves by variant, bars of final scores, what attention does.

For those who are online; `attnlab report` says the same, and more, without a network. Imports no torch.
"""

from __future__ import annotations

from typing import Any

import wandb
import wandb_workspaces.reports.v2.interface as reports
import wandb_workspaces.workspaces as workspaces
from wandb_workspaces import expr

from attnlab.errors import UserError
from attnlab.metrics import registry

METRICS = (*registry.names("token"), *registry.DEFAULT_METRICS)
"""Metrics that every run logs as `val/…` during training and as `test/…` at its end."""

ATTENTION = registry.names("attention")
"""Metrics that runs log for the validation split, and with `test/` in front for the test split."""

PICTURES = tuple(f"attention/{number}" for number in range(1, 5))
STEP = "trainer/global_step"
VARIANT = reports.Config("variant")


def workspace(entity: str, project: str, study: str) -> workspaces.Workspace:
    """A dashboard of the runs of a study, grouped by variant. Needs no network.

    Args:
        entity: the user or team that the project belongs to.
        project: as in `logger.wandb.project`.
        study: the runs' `name`, which is their group.
    """
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=f"attnlab {study}",
        sections=[
            _section("Final scores", [_bars(f"test/{name}") for name in METRICS]),
            _section(
                "Curves", [_curve(name) for name in ("train/loss", *(f"val/{name}" for name in METRICS))]
            ),
            _section("Attention", [_bars(f"test/{name}") for name in ATTENTION]),
            _section("Attention in training", [_curve(name) for name in ATTENTION]),
            _section("What it looks at", [reports.MediaBrowser(media_keys=list(PICTURES), num_columns=4)]),
            _section("What it says", [reports.WeavePanelSummaryTable(table_name="predictions/test")]),
        ],
        settings=workspaces.WorkspaceSettings(x_axis=STEP, max_runs=100),
        runset_settings=workspaces.RunsetSettings(
            filters=expr.And(expr.Metric("Group") == study),
            groupby=[expr.Config("variant")],
            pinned_columns=["config:variant", "config:seed", "summary:test/exact_match", "summary:test/bleu"],
        ),
    )


def publish(study: str, *, project: str, entity: str | None = None) -> str:
    """Save a study's dashboard in Weights & Biases; returns its address.

    Args:
        study: as of `workspace`.
        project: as of `workspace`.
        entity: as of `workspace`; None for the one that is logged in.

    Raises:
        UserError: if nobody is logged in, or the server refuses.
    """
    try:
        dashboard: Any = workspace(entity or wandb.Api().default_entity or "", project, study)
        address: str = dashboard.save().url
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"no dashboard: {reason}") from error
    return address


def _section(name: str, panels: list[reports.PanelTypes]) -> workspaces.Section:
    return workspaces.Section(name=name, panels=panels, is_open=True)


def _curve(metric: str) -> reports.LinePlot:
    """The mean over a variant's seeds, and its standard error."""
    return reports.LinePlot(
        title=metric,
        x=STEP,
        y=[metric],
        groupby=VARIANT,
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
        max_runs_to_show=100,
    )


def _bars(metric: str) -> reports.BarPlot:
    return reports.BarPlot(
        title=metric,
        metrics=[metric],
        groupby=VARIANT,
        groupby_aggfunc="mean",
        groupby_rangefunc="stderr",
        max_runs_to_show=100,
        max_bars_to_show=40,
    )
