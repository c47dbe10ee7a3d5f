"""The file results.csv."""

from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.report.collect import collect
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study_tables import scores_table
from run_files import write_run


def test_results_are_read_back(tmp_path: Path) -> None:
    write_run(tmp_path, "dot", 3, scores={"test/bleu": 1 / 3, "val/loss": 2.0})
    write_run(tmp_path, "none", 0, scores={"test/bleu": 0.1})
    write_run(tmp_path, "mean", 1, status="failed")
    write_run(tmp_path, "=1+1", 2)
    write_run(tmp_path, "'=1", 2)
    study = collect([tmp_path])
    path = tmp_path / "question" / "results.csv"
    path.parent.mkdir()
    path.write_text(format_results(study))
    read = read_results(path)
    assert read.name == "question"
    assert format_results(read) == path.read_text()
    assert "\n'=1+1,2" in path.read_text()
    assert [(run.variant, run.seed, run.status, run.scores) for run in read.runs] == [
        (run.variant, run.seed, run.status, run.scores) for run in study.runs
    ]
    assert read.finished[0].cpu == "Sparrow 2"
    assert read.finished[0].versions == {"python": "3.11.7", "torch": "2.13.0"}


def test_intervals_over_sentences_are_kept_without_the_sentences(tmp_path: Path) -> None:
    for seed, right in ((0, 30), (1, 34)):
        sentences = [(f"ein Satz {n}", "x", "x" if n < right else "y") for n in range(40)]
        write_run(tmp_path, "dot", seed, scores={"test/exact_match": right / 40}, sentences=sentences)
    write_run(tmp_path, "none", scores={"test/exact_match": 0.5})  # its outputs were not stored
    study = collect([tmp_path])
    path = tmp_path / "results.csv"
    path.write_text(format_results(study))
    read = read_results(path)
    assert format_results(read) == path.read_text()
    assert scores_table(read).csv() == scores_table(study).csv()
    assert scores_table(read).text.iloc[0, 2].startswith("[6")


def test_other_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"results.csv: No such file or directory. Give a results.csv"):
        read_results(tmp_path / "results.csv")
    (tmp_path / "results.csv").write_text("variant,seed\ndot,0\n")
    with pytest.raises(UserError, match=r"is not a results.csv of attnlab report: KeyError"):
        read_results(tmp_path / "results.csv")
