"""Summary of the runs of the atlas."""

import runpy
import shutil
from pathlib import Path

import pytest

ATLAS = Path(__file__).parent
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
