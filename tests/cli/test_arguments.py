"""Arguments that several commands share."""

import io
from pathlib import Path

import pytest

from attnlab.cli.arguments import without_reports
from attnlab.cli.main import run as run_command
from exports import write_checkpoint


def test_a_glob_of_runs_may_include_a_report() -> None:
    runs = ["out/a", "out/a.html", "out/a_files", "out/b_files"]
    assert without_reports(runs) == ["out/a", "out/b_files"]
    assert without_reports(["out/a.html"]) == ["out/a.html"]  # refused later, by its name


def test_predict_says_that_several_runs_are_one_ensemble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(write_checkpoint(tmp_path))
    for runs, said in (([checkpoint], False), ([checkpoint, checkpoint], True)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"horse\n")))
        assert run_command(["predict", *runs]) == 0
        assert ("attnlab: 2 runs are read as one ensemble" in capsys.readouterr().err) == said
