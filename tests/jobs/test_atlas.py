"""The atlas: tasks trained through the command, and the summary of its runs."""

import csv
import runpy
import shutil
from pathlib import Path

import pytest

from attnlab.report.collect import collect
from commands import attnlab

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
ATLAS = EXPERIMENTS / "atlas"
TINY = (
    *("embedding.size=8", "encoder.size=8", "decoder.size=16", "attention_size=8", "search.max_length=8"),
    *("data.train_size=64", "data.val_size=8", "data.test_size=8", "trainer.accelerator=cpu", "logger=none"),
)
FIELDS = "task,model,seed,test_set,exact_match,alignment_accuracy,parameters,seconds,commit"
ROWS = [
    *("sort,additive,0,same,1.0,1.0,90,3.5,", "sort,additive,0,longer,0.25,0.5,90,3.5,"),
    *("sort,additive,1,same,0.9,1.0,90,3.5,", "sort,additive,1,longer,0.5,0.5,90,3.5,"),
    *("sort,shift,0,same,1.0,1.0,95,3.5,", "sort,shift,0,longer,1.0,0.5,95,3.5,"),
    *("sort,shift,1,same,1.0,1.0,95,3.5,", "sort,shift,1,longer,1.0,0.5,95,3.5,"),
    "sort,shift,2,same,0.0,1.0,95,3.5,",  # without the other models, this seed is not used
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the folder of the experiment without results."""
    monkeypatch.syspath_prepend(ATLAS)  # as `python summary.py` does
    shutil.copytree(ATLAS, tmp_path / "atlas", ignore=shutil.ignore_patterns("results.csv", "*.svg"))
    return tmp_path / "atlas"


def summary(folder: Path, *runs: str) -> None:
    runpy.run_path(str(folder / "summary.py"))["main"](*runs)


def test_summary_of_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "results.csv").write_text("\n".join([FIELDS, *ROWS, ""]))
    summary(folder)
    printed = capsys.readouterr().out.replace("\\", "")
    assert "mean of 2 seeds" in printed
    assert "| sort | longer | 95→38 | 100→100 |" in printed
    assert "| additive | 1 of 1 | 95 [90, 100] |  | 38 [25, 50] |  |" in printed
    # of the four pairs of runs on `same`, shift is better in two and equal in two
    assert "| shift | 1 of 1 | 100 [100, 100] | 75 [50, 100] | 100 [100, 100] | 100 [100, 100] |" in printed


def test_results_without_a_complete_seed_are_rejected(folder: Path) -> None:
    (folder / "results.csv").write_text("\n".join([FIELDS, *ROWS[:1], *ROWS[-1:], ""]))
    with pytest.raises(SystemExit, match="no seed with which every model has a run"):
        summary(folder)


@pytest.mark.slow
def test_values_of_the_atlas_select_the_task_and_the_network(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = f"--config-dir={EXPERIMENTS}/parts/conf"
    grid = (options, "study=atlas", "quick=true", "task=dyck", "model=additive,mingru")
    attnlab("train", "-m", *grid, *TINY, folder=folder.parent)
    outputs = folder.parent / "outputs" / "atlas_quick"
    first, second = sorted(collect([outputs]).finished, key=lambda run: run.variant)
    assert (first.variant, second.variant) == ("dyck-additive", "dyck-mingru")
    assert first.config["data"]["task"] == second.config["data"]["task"] == "dyck"
    assert first.config["encoder"]["_target_"].endswith("RecurrentEncoder")
    assert second.config["encoder"]["_target_"].endswith("MinGRUEncoder")
    assert second.config["encoder"]["size"] == 8  # the command line replaces the overrides of the study
    assert {"test/same/exact_match", "test/longer/attention/alignment_accuracy"} <= first.scores.keys()

    summary(folder, str(outputs))
    with (folder / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["test_set"]) for row in rows] == [
        (model, test_set) for model in ("additive", "mingru") for test_set in ("same", "longer")
    ]
    assert "one seed" in capsys.readouterr().out
    assert (folder / "profiles.svg").is_file()
