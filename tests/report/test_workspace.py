"""Weights & Biases dashboard of a study, built offline."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from wandb_workspaces import expr

from attnlab.cli import main
from attnlab.metrics.attention import NAMES
from attnlab.metrics.registry import default_metrics
from attnlab.report import workspace
from run_files import write_run
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


def test_dashboard_begins_with_the_differences_from_the_reference() -> None:
    board = workspace.build_workspace(
        *("me", "attnlab", "speech", ["test/wer", "test/ser", "test/loss"]),
        compared=["test/wer", "test/ser"],
        differences="| dot | -3.0 |",
        reference=["0a1b2c3d", "4e5f6a7b"],
    )
    board._to_model()  # the request to the server
    (panel,) = board.sections[0].panels
    assert panel.markdown == "| dot | -3.0 |"
    settings = board.runset_settings
    assert settings.pinned_columns[-2:] == ["summary:test/wer", "summary:test/ser"]
    assert settings.order == [expr.Ordering(expr.Summary("test/wer"), ascending=True)]  # lower is better
    assert [str(run) for run in settings.pinned_runs] == ["0a1b2c3d", "4e5f6a7b"]
    assert str(settings.baseline_run) == "0a1b2c3d"
    titles = [panel.title for panel in board.sections[1].panels]
    assert titles == ["test/wer, in %", "test/ser, as a fraction of 1", "test/loss"]


def test_report_publishes_the_differences_by_effect_and_links_to_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {
        (variant, seed): write_run(tmp_path, variant, seed, scores={"test/wer": base + growth * seed})
        for variant, base, growth in (("none", 50.0, 0.0), ("dot", 48.0, 1.0), ("mlp", 40.0, 2.0))
        for seed in range(3)
    }
    boards = []

    def build(entity: str, *arguments: object, **content: Any) -> Any:
        boards.append((entity, *arguments, content))
        return SimpleNamespace(save=lambda: SimpleNamespace(url="https://wandb.ai/team/board"))

    monkeypatch.setattr(workspace, "build_workspace", build)
    assert main.run(["report", str(tmp_path), "--wandb", "--entity", "team"]) == 0
    ((entity, project, name, content),) = boards
    assert (entity, project, name) == ("team", "attnlab", "reverse")
    assert content["reference"][0] == runs["none", 0].hash
    assert len(content["reference"]) == 3
    rows = [line.split(" | ")[0] for line in content["differences"].splitlines() if " | none | " in line]
    assert rows == ["| mlp", "| dot"]  # -8.0 and -1.0
    assert "dashboard  https://wandb.ai/team/board" in capsys.readouterr().out
    assert '<a href="https://wandb.ai/team/board">' in (tmp_path / "report.html").read_text()
    assert main.run(["report", str(tmp_path), "--entity", "team"]) == 2


def test_dashboard_belongs_to_the_entity_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(entity: str, *_: object, **content: object) -> Any:
        return SimpleNamespace(save=lambda: SimpleNamespace(url=f"https://wandb.ai/{entity}"))

    monkeypatch.setattr(workspace, "build_workspace", build)
    monkeypatch.setattr("wandb.Api", lambda: SimpleNamespace(default_entity="me"))
    assert workspace.publish_workspace("study", project="p", scores=()) == "https://wandb.ai/me"
    assert workspace.publish_workspace("study", project="p", entity="team") == "https://wandb.ai/team"
