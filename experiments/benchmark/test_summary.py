"""Results that others submit, beside the stored ones."""

import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.report.benchmark import scores
from attnlab.report.benchmark.scores import Results

SUMMARY = runpy.run_path(str(Path(__file__).with_name("summary.py")))  # other experiments have this name too


def test_submitted_results_are_described_unless_they_break_a_rule(tmp_path: Path) -> None:
    stored = scores.read(scores.STORED)
    settings = "attention=dot attention._target_=mine.Mine"
    mine = [
        replace(
            each,
            model="mine",
            overrides=settings,
            built_in="moves to the right",
            outputs="of mine",
            code="9f8e",
        )
        for each in stored
        if each.model == "dot" and each.seed < 3 and each.task != "marathi"  # of another edition
    ]
    scores.write(Results(mine), tmp_path / "mine.csv")
    described = SUMMARY["submitted"](stored, tmp_path)
    assert described.startswith("### Submitted\n\n| mechanism | seeds | ")
    assert re.search(r"\| mine \| 3 \| .* \| moves to the right \|\n\n- mine improves over", described)
    assert f"(11 tasks, 3 seeds against {len(stored.seeds('additive'))})" in described
    scores.write(Results(each for each in mine if each.seed), tmp_path / "few.csv")
    with pytest.raises(UserError, match=r"few\.csv: seeds 1, 2: 3 or more are needed, without"):
        SUMMARY["submitted"](stored, tmp_path)
    assert SUMMARY["submitted"](stored, tmp_path / "none") == ""


def test_stability_of_a_ranking() -> None:
    """Over tasks, a and b change places; over seeds, c and d do."""
    sort = [9, 9], [8, 8], [2, 1], [1, 2]  # of a to d with seeds 0 and 1
    scan = [5, 5], [7, 7], [2, 1], [1, 2]
    values = np.array([sort, scan], dtype=float).transpose(1, 2, 0)  # [K, R, M]
    tasks, seeds = SUMMARY["stability"](values, lambda part: part.mean(axis=(1, 2)))
    # Means of sort are 9, 8, 1.5, 1.5 and of scan 5, 7, 1.5, 1.5: of six pairs four agree, one does not
    assert tasks == pytest.approx([3 / 5, 3 / 5])
    # By seed, 7, 7.5, 2, 1 and 7, 7.5, 1, 2: five of six agree
    assert seeds == pytest.approx([4 / 6, 4 / 6])
