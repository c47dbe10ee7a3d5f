"""Weights & Biases dashboard of a study: curves by variant, final scores and attention metrics.

For users who log online; `attnlab report` shows the same and more offline. Imports no torch.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import wandb
import wandb_workspaces.reports.v2.interface as reports
import wandb_workspaces.workspaces as workspaces
from wandb_workspaces import expr

from attnlab.errors import UserError
from attnlab.metrics import registry

ATTENTION = registry.names("attention")
"""Metrics that runs log for the validation split, and with the prefix of a test split at their end."""

HEAT_MAPS = tuple(f"attention/{position}" for position in range(1, 5))
MAX_PINNED = 20  # runs that W&B pins at most
STEP = "trainer/global_step"
GROUPING: dict[str, Any] = {
    "groupby": reports.Config("variant"),
    "groupby_aggfunc": "mean",
    "groupby_rangefunc": "stderr",
    "max_runs_to_show": 100,
}
"""Panel settings: mean over the seeds of a variant, with its standard error."""


def build_workspace(
    entity: str,
    project: str,
    study: str,
    scores: Iterable[str] = (),
    *,
    compared: Sequence[str] = (),
    differences: str = "",
    reference: Sequence[str] = (),
) -> workspaces.Workspace:
    """Build the dashboard of the runs of a study, grouped by variant, without network access.

    Args:
        entity: user or team of the project.
        project: project of the runs.
        study: group of the runs.
        scores: names of the final metrics of the runs, by default those of data with one test set and without
            metrics of its own; those of the validation split are shown only if there is no test split.
        compared: metrics of the comparison; they are pinned, and the first one orders the runs.
        differences: Markdown of the differences from the reference, the first section.
        reference: ids of the runs of the reference variant; they are pinned, and the first is the baseline.
    """
    default = (*registry.names("token"), *registry.default_metrics(), *ATTENTION)
    metrics = [*map(registry.metric, dict.fromkeys(scores) or [f"test/{name}" for name in default])]
    splits = dict.fromkeys(metric.split for metric in metrics)
    tests = [split for split in splits if split != "val"] or ["val"]
    final = [metric for metric in metrics if metric.split in tests and metric.kind != "attention"]
    attention = [metric for metric in metrics if metric.split in tests and metric.kind == "attention"]
    curves = dict.fromkeys(("train/loss", *(f"val/{metric.name}" for metric in final)))
    pinned = compared or [metric.logged for metric in final if metric.name in ("exact_match", "bleu")]
    first = map(registry.metric, pinned[:1])
    sections: dict[str, list[reports.PanelTypes]] = {
        "Differences": [reports.MarkdownPanel(markdown=differences)] if differences else [],
        "Final scores": [_bars(metric) for metric in final],
        "Curves": [_curve(registry.metric(name)) for name in curves],
        "Attention metrics": [_bars(metric) for metric in attention],
        "Attention metrics during training": [_curve(registry.metric(name)) for name in ATTENTION],
        "Attention heat maps": [reports.MediaBrowser(media_keys=list(HEAT_MAPS), num_columns=4)],
        "Predictions": [reports.WeavePanelSummaryTable(table_name=f"predictions/{split}") for split in tests],
    }
    return workspaces.Workspace(
        entity=entity,
        project=project,
        name=f"attnlab {study}",
        sections=[
            workspaces.Section(name=name, panels=panels, is_open=True)
            for name, panels in sections.items()
            if panels or name != "Differences"
        ],
        settings=workspaces.WorkspaceSettings(x_axis=STEP, max_runs=100),
        runset_settings=workspaces.RunsetSettings(
            filters=expr.And(expr.Metric("Group") == study),
            groupby=[expr.Config("variant")],
            order=[expr.Ordering(expr.Summary(each.logged), ascending=each.sign < 0) for each in first],
            baseline_run=next(iter(reference), None),
            pinned_runs=list[str | workspaces.RunRef](reference[:MAX_PINNED]),
            pinned_columns=["config:variant", "config:seed", *(f"summary:{score}" for score in pinned)],
        ),
    )


def publish_workspace(study: str, *, project: str, entity: str | None = None, **content: Any) -> str:
    """Save the dashboard of `build_workspace`, by default for the user's default entity; return its URL."""
    try:
        entity = entity or wandb.Api().default_entity or ""
        dashboard: Any = build_workspace(entity, project, study, **content)
        url: str = dashboard.save().url
    except Exception as error:
        reason, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"The dashboard could not be saved: {reason}") from error
    return url


def _title(metric: registry.Metric) -> str:
    """Return the name of a metric with the unit of the logged values."""
    unit = {100: ", as a fraction of 1"}.get(metric.scale, ", in %") if metric.unit == "%" else ""
    return metric.logged + unit


def _curve(metric: registry.Metric) -> reports.LinePlot:
    return reports.LinePlot(title=_title(metric), x=STEP, y=[metric.logged], **GROUPING)


def _bars(metric: registry.Metric) -> reports.BarPlot:
    return reports.BarPlot(title=_title(metric), metrics=[metric.logged], max_bars_to_show=40, **GROUPING)
