"""Scorecards of attention weights in reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.analysis.collect import collect
from attnlab.cli import main
from attnlab.plotting.style import variant_styles
from attnlab.report import scorecards
from attnlab.runs.directory import Run
from studies import make_run

TEXTS = [("a b", "b a"), ("c d e", "e d c")]


def score(value: float, width: float = 0.1) -> dict[str, Any]:
    return {"value": value, "low": value - width, "high": value + width, "units": 9, "sentences": 3}


def write_card(run: Run, folder: str, scores: dict[str, Any], overrides: list[str]) -> None:
    path = run.directory / "evaluations" / folder / "explanations.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"split": "test", "overrides": overrides, "scores": scores}))


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
    evaluations = scorecards.gather(study)
    assert [evaluation.title for evaluation in evaluations] == ["test", "test data.test_lengths=[13,24]"]
    table, longer = scorecards.build(evaluations)
    assert [column.name for column in table.columns] == [
        *("variant", "runs", "τ with gradients", "alignment error rate [%]")
    ]
    texts = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert texts["dot"][:2] == ["2", "0.600 [-0.860, 0.991]"]  # logit 1.386 ± 3.971 by Student's t
    assert texts["dot"][2].startswith("20.0 [")
    assert texts["mean"] == ["1", "–", "90.0 [80.0, 100.0]"]  # of one run: over its sentences
    assert [cell.text for cell in longer.rows[0]] == ["mean", "1", "0.250 [0.150, 0.350]"]
    figure, _ = scorecards.draw(evaluations, variant_styles(study.variants))
    titles = [axes.get_title() for axes in figure.figure.axes if axes.get_visible()]
    assert titles == ["τ with gradients", "Alignment error rate, %"]

    assert main.run(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text()
    assert "Attention weights as explanations: test data.test_lengths=[13,24]" in page
    assert (folder / "report_files" / "tables" / "explanations.csv").is_file()
    assert (folder / "report_files" / "figures" / "explanations-2.svg").is_file()
    assert "it is not a scorecard" in caplog.text
