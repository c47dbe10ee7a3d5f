"""Confusions, wrong outputs, groups and calibration, worked out by hand."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.files.predictions import Prediction
from attnlab.metrics.errors import Edit, edits_of, find_errors


def prediction(source: str, reference: str, hypothesis: str, p_beam: float, p: float = 0.1) -> Prediction:
    log_p = math.log(p)
    return Prediction(
        index=0, source=source, references=(reference,), hypothesis=hypothesis, log_p=log_p, p_beam=p_beam
    )


WEIGHTS = np.array([[0, 1, 0], [0.2, 0.1, 0.7], [0.5, 0.3, 0.2], [0, 0, 1]])
ALIGNED = Prediction(
    index=0,
    source="rst",
    references=("a b c d",),
    hypothesis="a x c",
    p_beam=0.9,
    log_p=-1.0,
    tokens=["a", "x", "c", "<eos>"],
    source_tokens=["r", "s", "t"],
    weights=WEIGHTS,
)
OUTPUTS = [
    ALIGNED,
    prediction("uv", "b d", "b  d", 0.95),
    prediction("w", "b", "x", 0.3),
    prediction("zz", "e", "y e", 0.2),
    prediction("kkk", "f", "f", 0.21),
]


def test_edits_name_the_source_token_that_the_output_attended_to() -> None:
    # Of the missing d: s is between r, to which c attends, and t, to which <eos> attends
    assert edits_of(ALIGNED) == [Edit("b", "x", "t"), Edit("d", "", "s")]
    shorter = replace(ALIGNED, hypothesis="x c", tokens=ALIGNED.tokens[1:], weights=WEIGHTS[1:])
    assert edits_of(shorter) == [Edit("a", "", "r s"), Edit("b", "x", "t"), Edit("d", "", "s")]
    # a and x attend to t, with nothing between them; before the first output there is no token
    between = replace(ALIGNED, references=("a b x c",), weights=WEIGHTS[[1, 1, 2, 3]])
    assert edits_of(between) == [Edit("b", "", "t")]
    first = replace(ALIGNED, references=("b a x c",), weights=WEIGHTS[[2, 1, 2, 3]])
    assert edits_of(first) == [Edit("b", "", "")]
    assert edits_of(OUTPUTS[3]) == [Edit("", "y")]
    edits = edits_of(OUTPUTS[3], list)
    assert edits == [Edit("", "y"), Edit("", " ")]
    assert [*map(str, edits)] == ["∅ > y", "∅ > ␣"]


def test_tables_of_errors() -> None:
    lengths = [["3"], ["2"], ["1"], ["2"], ["10"]]
    errors = find_errors(OUTPUTS, groups={"length": lengths, "feature": [["N", "N"], ["N"], [], ["V"], []]})
    confusions = errors.confusions.values.tolist()
    assert confusions[0] == ["b", "x", 2, "t 1", "rst | w"]
    assert sorted(confusions[1:]) == [["", "y", 1, "", "zz"], ["d", "", 1, "s 1", "rst"]]
    assert errors.wrong.values.tolist() == [
        ["rst", "a b c d", "a x c", 0.9, "b > x, d > ∅"],
        ["w", "b", "x", 0.3, "b > x"],
        ["zz", "e", "y e", 0.2, "∅ > y"],
    ]
    assert errors.groups.values.tolist() == [
        ["length", "1", 1, 0, 0.0],
        ["length", "2", 2, 1, 0.5],
        ["length", "3", 1, 0, 0.0],
        ["length", "10", 1, 1, 1.0],
        ["feature", "N", 2, 1, 0.5],
        ["feature", "V", 1, 0, 0.0],
    ]
    assert errors.calibration.values.tolist() == [
        [2, pytest.approx(0.205), 0.5],
        [1, 0.3, 0.0],
        [2, pytest.approx(0.925), 0.5],
    ]
    found = [0.2, 0.4, 0.6, 0.8, 1.0], [1 / 3, 1 / 3, 2 / 3, 1, 1]
    np.testing.assert_allclose(errors.found.to_numpy().T, found)
    assert errors.found_in(0.5) == pytest.approx(1 / 3)


def test_confidence_of_greedy_search_is_the_probability() -> None:
    errors = find_errors([prediction("a", "b", "c", 1.0, 0.25), prediction("b", "c", "c", 1.0, 0.75)])
    assert errors.calibration.values.tolist() == [[1, 0.25, 0.0], [1, 0.75, 1.0]]


def test_predictions_without_probabilities_and_without_errors_have_empty_tables(tmp_path: Path) -> None:
    errors = find_errors([Prediction(index=0, source="a", references=("b",), hypothesis="b")])
    errors.write(tmp_path)
    sizes = {path.stem: len(pd.read_csv(path)) for path in tmp_path.iterdir()}
    assert sizes == {"confusions": 0, "wrong": 0, "groups": 0, "calibration": 0, "found": 1}
    assert errors.found_in(1.0) == 0.0


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_edits_explain_the_difference_of_lengths(output: list[str], reference: list[str]) -> None:
    edits = edits_of(
        Prediction(index=0, source="", references=(" ".join(reference),), hypothesis=" ".join(output))
    )
    missing = sum(not edit.output for edit in edits)
    additional = sum(not edit.expected for edit in edits)
    assert len(reference) - len(output) == missing - additional
    assert (output == reference) == (not edits)
