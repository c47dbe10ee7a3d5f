"""The command `attnlab report`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attnlab.cli.main import run
from commands import attnlab
from run_files import write_run


def write_study(folder: Path) -> None:
    right = [(f"s{n}", f"s{n}", f"s{n}") for n in range(8)]
    wrong = [(source, reference, "wrong") for source, reference, _ in right]
    for seed, (ours, theirs) in enumerate([(60.0, 50.0), (62.0, 51.0), (63.0, 53.0)]):
        for variant, bleu, sentences in (("dot", ours, right), ("none", theirs, wrong)):
            scores = {"test/bleu": bleu, "test/loss": 1 / bleu}
            write_run(folder, variant, seed, scores=scores, sentences=sentences)
    write_run(folder, "[bold]mean[/bold]", 0, status="failed")


def test_report_prints_tables_and_writes_files(tmp_path: Path) -> None:
    write_study(tmp_path)
    done = attnlab("report", "reverse", "-o", "out/report.html", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "61.7 ± 3.8" in done.stdout
    assert "dot beats none by 10.3 BLEU [8.9, 11.8], p = 0.001, 3 seeds." in done.stdout
    assert "8 sentences, 3 seeds." in done.stdout
    assert (
        "not finished: [bold]mean[/bold] seed 0, failed: result.json contains no error message" in done.stdout
    )
    kinds = [f"{name}.{kind}" for name in ("comparisons", "costs", "scores") for kind in ("csv", "md", "tex")]
    assert sorted(path.name for path in (tmp_path / "out" / "tables").iterdir()) == kinds
    assert (tmp_path / "out" / "results.csv").is_file()
    assert (tmp_path / "out" / "figures" / "scores-bleu.svg").is_file()


def test_default_output_is_the_folder_of_the_study(tmp_path: Path) -> None:
    write_study(tmp_path)
    assert run(["report", str(tmp_path / "reverse"), "--metric", "test/loss"]) == 0
    assert (tmp_path / "reverse" / "results.csv").is_file()
    assert (tmp_path / "reverse" / "tables" / "scores.md").read_text().startswith("| variant | seeds | loss")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ["--metric", "test/blue"],
            "No finished run has the metric 'test/blue': choose from test/bleu, test/loss",
        ),
        (["--reference", "x"], "'x' has no finished run. Choose the reference from dot, none"),
        (["-o", "report.pdf"], "-o report.pdf: the name must end in .html"),
    ],
)
def test_usage_errors_name_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], error: str
) -> None:
    write_study(tmp_path)
    assert run(["report", str(tmp_path), *options]) == 1
    assert capsys.readouterr().err.startswith(f"attnlab: {error}")
    assert not list(tmp_path.rglob("tables"))


def test_study_without_finished_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, status="running")
    assert run(["report", str(tmp_path)]) == 0
    assert "not finished: additive seed 0, running" in capsys.readouterr().out


def test_dashboard_without_api_key_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert run(["report", str(tmp_path), "--wandb"]) == 1
    assert re.match(r"attnlab: The dashboard could not be saved: .*wandb login", capsys.readouterr().err)
