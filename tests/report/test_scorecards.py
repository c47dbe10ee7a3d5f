"""Scorecards of attention weights in reports."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.files.run_directory import Run
from attnlab.report.collect import collect
from attnlab.report.scorecards import draw_scorecards, gather_evaluations, scorecard_tables
from attnlab.report.style import variant_styles
from studies import make_run

TEXTS = [("a b", "b a"), ("c d e", "e d c")]


def score(value: float, width: float = 0.1) -> dict[str, Any]:
    return {"value": value, "low": value - width, "high": value + width, "units": 9, "sentences": 3}


def write_card(run: Run, folder: str, scores: dict[str, Any], overrides: list[str], **settings: Any) -> None:
    path = run.directory / "evaluations" / folder / "explanations.json"
    path.parent.mkdir(parents=True)
    record = {"split": "test", "overrides": overrides, "scores": scores, "settings": settings}
    path.write_text(json.dumps(record))


def test_scorecards_of_a_run_count_as_one_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "study", "dot", 0, TEXTS)
    write_card(run, "test-b", {"gradient_tau": score(0.5), "erasure_tau": score(0.2)}, [], steps=16)
    time.sleep(0.02)  # the times of files have a resolution
    write_card(run, "test-a", {"gradient_tau": score(0.4)}, [], steps=16)  # newer
    write_card(run, "test-c", {"gradient_tau": score(0.3)}, [], steps=32)
    write_card(run, "test-d", {}, ["data.test_size=3"], steps=16)  # no measure has units
    write_card(run, "test-e", {"integrated_gradients_error": score(0.1)}, ["seed=1"], steps=16)
    evaluations = gather_evaluations(collect([tmp_path / "study"]))
    titles = ["test explain.steps=16", "test explain.steps=32", "test seed=1"]
    assert [evaluation.name for evaluation in evaluations] == titles
    assert [[cell.text for cell in table.rows[0]] for table in scorecard_tables(evaluations)] == [
        ["dot", "1", "0.400 [0.300, 0.500]", "0.200 [0.100, 0.300]"],
        ["dot", "1", "0.300 [0.200, 0.400]"],
        ["dot", "1", "0.100 [0.000, 0.200]"],
    ]
    drawn = draw_scorecards(evaluations, variant_styles(["dot"]))
    assert [figure.name for figure in drawn] == ["explanations", "explanations-2"]  # no panel for an error


@pytest.mark.slow
def test_report_has_a_table_and_small_multiples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "study"
    for variant, seed, tau, error in (("dot", 0, 0.5, 0.1), ("dot", 1, 0.7, 0.3), ("mean", 0, None, 0.9)):
        run = make_run(folder, variant, seed, TEXTS)
        scores = {"alignment_error_rate": score(error), "foreign": score(1)}
        write_card(run, "test-1", scores if tau is None else {"gradient_tau": score(tau), **scores}, [])
    write_card(run, "test-2", {"gradient_tau": score(0.25)}, ["data.test_lengths=[13,24]"])
    (run.directory / "evaluations" / "test-3").mkdir()
    (run.directory / "evaluations" / "test-3" / "explanations.json").write_text("[]")
    make_run(folder, "none", 0, TEXTS)  # no scorecard

    study = collect([folder])
    evaluations = gather_evaluations(study)
    assert [evaluation.name for evaluation in evaluations] == ["test", "test data.test_lengths=[13,24]"]
    table, longer = scorecard_tables(evaluations)
    assert [column.name for column in table.columns] == [
        *("variant", "runs", "τ with gradients", "alignment error rate [%]")
    ]
    texts = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert texts["dot"][:2] == ["2", "0.600 [-0.860, 0.991]"]  # logit 1.386 ± 3.971 by Student's t
    assert texts["dot"][2].startswith("20.0 [")
    assert texts["mean"] == ["1", "–", "90.0 [80.0, 100.0]"]  # of one run: over its sentences
    assert [cell.text for cell in longer.rows[0]] == ["mean", "1", "0.250 [0.150, 0.350]"]
    figure, _ = draw_scorecards(evaluations, variant_styles(study.variants))
    titles = [axes.get_title() for axes in figure.figure.axes if axes.get_visible()]
    assert titles == ["τ with gradients", "Alignment error rate, %"]

    assert main.run(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "Attention weights as explanations: test data.test_lengths=[13,24]" in page
    assert (folder / "report_files" / "tables" / "explanations.csv").is_file()
    assert (folder / "report_files" / "figures" / "explanations-2.svg").is_file()
    assert "it is not a scorecard" in caplog.text
