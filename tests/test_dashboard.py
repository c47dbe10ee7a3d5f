"""The dashboard of a study, built without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from wandb_workspaces import expr

from attnlab import dashboard
from attnlab.errors import UserError
from attnlab.metrics.attention import NAMES
from attnlab.metrics.scores import EVERY
from wandb_files import shown


def test_it_shows_every_score_by_variant() -> None:
    workspace = dashboard.workspace("me", "attnlab", "bottleneck")
    assert (workspace.entity, workspace.project, workspace.name) == ("me", "attnlab", "attnlab bottleneck")
    names = shown(workspace)
    assert {f"{split}/{name}" for split in ("val", "test") for name in EVERY} <= names
    assert {f"{prefix}/{name}" for prefix in ("attention", "test/attention") for name in NAMES} <= names
    assert {"train/loss", "predictions/test", "attention/1"} <= names
    for section in workspace.sections:
        assert section.panels
        for panel in section.panels:
            assert getattr(panel, "groupby", dashboard.VARIANT) == dashboard.VARIANT
            assert getattr(panel, "x", dashboard.STEP) == dashboard.STEP


def test_it_shows_the_runs_of_the_study_alone() -> None:
    workspace = dashboard.workspace("me", "attnlab", "bottleneck")
    workspace._to_model()  # what would be sent
    settings = workspace.runset_settings
    assert settings.filters == "Metric(\"Group\") == 'bottleneck'"
    assert settings.groupby == [expr.Config("variant")]


def test_without_a_key_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    with pytest.raises(UserError, match=r"no dashboard: .*wandb login"):
        dashboard.publish("bottleneck", project="attnlab")
