"""Weights & Biases dashboard of a study, built offline."""

from types import SimpleNamespace
from typing import Any

import pytest
from wandb_workspaces import expr

from attnlab.metrics.attention import NAMES
from attnlab.metrics.registry import default_metrics
from attnlab.report import workspace
from wandb_files import shown


def test_dashboard_shows_every_metric_by_variant() -> None:
    board = workspace.build_workspace("me", "attnlab", "bottleneck")
    assert (board.entity, board.project, board.name) == ("me", "attnlab", "attnlab bottleneck")
    names = shown(board)
    assert {f"{split}/{name}" for split in ("val", "test") for name in default_metrics()} <= names
    assert {f"{prefix}/{name}" for prefix in ("attention", "test/attention") for name in NAMES} <= names
    assert {"train/loss", "predictions/test", "attention/1"} <= names
    for section in board.sections:
        assert section.panels
        for panel in section.panels:
            assert getattr(panel, "groupby", workspace.GROUPING["groupby"]) == workspace.GROUPING["groupby"]
            assert getattr(panel, "x", workspace.STEP) == workspace.STEP


def test_dashboard_shows_every_named_test_set_and_the_metrics_of_the_data() -> None:
    scores = [
        f"test/{name}/{metric}" for name in ("flickr", "coco") for metric in ("bleu", "attention/entropy")
    ]
    board = workspace.build_workspace(
        "me", "attnlab", "multi30k", [*scores, "val/bleu", "test/coco/conala_bleu"]
    )
    names = shown(board)
    assert {*scores, "test/coco/conala_bleu", "val/conala_bleu", "val/bleu"} <= names
    assert {"predictions/test/flickr", "predictions/test/coco", "attention/entropy"} <= names
    assert not {name for name in names if name in ("test/bleu", "predictions/test", "val/attention/entropy")}
    pinned = {"summary:test/flickr/bleu", "summary:test/coco/bleu"}
    assert pinned <= {*board.runset_settings.pinned_columns}

    board = workspace.build_workspace("me", "attnlab", "no test data", ["val/bleu", "attention/entropy"])
    assert {"val/bleu", "attention/entropy", "predictions/val"} <= shown(board)
    assert all(section.panels for section in board.sections)


def test_dashboard_filters_the_runs_of_the_study() -> None:
    board = workspace.build_workspace("me", "attnlab", "bottleneck")
    board._to_model()  # the request to the server
    settings = board.runset_settings
    assert settings.filters == "Metric(\"Group\") == 'bottleneck'"
    assert settings.groupby == [expr.Config("variant")]


def test_dashboard_belongs_to_the_entity_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(entity: str, *_: object) -> Any:
        return SimpleNamespace(save=lambda: SimpleNamespace(url=f"https://wandb.ai/{entity}"))

    monkeypatch.setattr(workspace, "build_workspace", build)
    monkeypatch.setattr("wandb.Api", lambda: SimpleNamespace(default_entity="me"))
    assert workspace.publish_workspace("study", project="p", scores=()) == "https://wandb.ai/me"
