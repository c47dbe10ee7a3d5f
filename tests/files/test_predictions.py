"""Predictions files and packed attention weights."""

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnlab.files.predictions import (
    Prediction,
    Weights,
    pack_weights,
    read_predictions,
    unpack_weights,
    write_columns,
    write_predictions,
)

HOSTILE = ["\u2028", "\n", '"', "</script>", "क्षि", ""]
WEIGHTS = np.array([[0.25, 0.5, 0, 0, 0, 0.25]], dtype=np.float32)
FULL = Prediction(
    index=3,
    source="a\u2028b",
    references=("c",),
    hypothesis='d\n"',
    annotations={"quoted": ["a", ""]},
    rank=2,
    score=-1.5,
    log_p=-3.0,
    p_beam=0.75,
    source_tokens=HOSTILE,
    tokens=["<eos>"],
    weights=WEIGHTS,
    alignment=[[0, 5]],
)
TEXTS = Prediction(index=7, source="a", hypothesis="b")


def test_packed_weights_take_one_byte_each_row_by_row() -> None:
    packed = pack_weights(np.array([[0.0, 1.0, 0.5], [0.2, 0.001, 1.3]]))
    assert packed is not None
    # 0.5 · 255 = 127.5, rounded to even; 0.001 · 255 = 0.255; above 1 as 1
    assert list(base64.b64decode(packed)) == [0, 255, 128, 51, 0, 255]


@given(arrays(float, (3, 5), elements=st.floats(0, 1)))
def test_unpacked_weights_are_exact_to_half_a_step(weights: np.ndarray) -> None:
    packed = pack_weights(weights)
    if packed is None:
        assert weights.max() <= 1 / 510
    else:
        unpacked = unpack_weights(packed, (3, 5))
        assert unpacked == pytest.approx(weights, abs=1 / 510 + 1e-12)
        assert pack_weights(unpacked) == packed


def test_weights_that_are_all_zero_are_not_stored() -> None:
    assert pack_weights(np.zeros((2, 3))) is None


@pytest.mark.parametrize("weights", ["pack", "round"])
def test_a_written_file_reads_back_equal(tmp_path: Path, weights: Weights) -> None:
    path = tmp_path / "predictions" / "attention.jsonl"
    write_predictions(path, [FULL, TEXTS], weights=weights)
    assert path.read_text(encoding="utf-8").count("\n") == 2
    full, texts = read_predictions(path)
    assert (full, texts) == (FULL, TEXTS)
    assert full.weights == pytest.approx(WEIGHTS, abs=1 / 510 if weights == "pack" else 1e-4)
    assert texts.weights is None


def test_omitted_weights_leave_only_texts(tmp_path: Path) -> None:
    write_predictions(tmp_path / "test.jsonl", [FULL], weights="omit")
    (prediction,) = read_predictions(tmp_path / "test.jsonl")
    expected = Prediction(
        index=3, source="a\u2028b", references=("c",), hypothesis='d\n"', annotations={"quoted": ["a", ""]}
    )
    assert prediction == replace(expected, log_p=FULL.log_p, p_beam=FULL.p_beam)


def test_text_is_written_as_it_is(tmp_path: Path) -> None:
    write_predictions(tmp_path / "test.jsonl", [replace(TEXTS, hypothesis="größe माझा")], weights="omit")
    assert "größe माझा" in (tmp_path / "test.jsonl").read_text(encoding="utf-8")


def test_a_missing_file_holds_no_predictions(tmp_path: Path) -> None:
    assert read_predictions(tmp_path / "none.jsonl") == []


def test_columns_hold_one_line_per_text(tmp_path: Path) -> None:
    write_columns(tmp_path / "test.tsv", [("größe", "ɡ r"), ("a\tb", "c\nd\r"), (" x", "")])
    assert (tmp_path / "test.tsv").read_text(encoding="utf-8") == "größe\tɡ r\na b\tc d \n x\t\n"


def test_features_of_a_source_are_named_without_their_brackets() -> None:
    source = "at ⟨N⟩ ⟨ABL⟩ ⟨(⟩ ⟨PL⟩ ⟨PSS⟩ ⟨(⟩ ⟨2⟩ ⟨PL⟩ ⟨)⟩ ⟨)⟩"
    assert Prediction(index=0, source=source, hypothesis="").features == ["N", "ABL", "PL", "PSS", "2", "PL"]
    assert Prediction(index=0, source="a ⟨ b", hypothesis="").features == []
