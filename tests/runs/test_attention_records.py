"""Weights as they are kept in a file."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnlab.runs import attention_records
from attnlab.runs.attention_records import Attended


def test_a_weight_is_a_byte_row_by_row() -> None:
    packed = attention_records.pack([[0.0, 1.0, 0.5], [0.2, 0.001, 0.003]])
    assert packed is not None
    # 0.5 · 255 = 127.5, to the even neighbour; 0.001 · 255 = 0.255; 0.003 · 255 = 0.765
    assert list(base64.b64decode(packed)) == [0, 255, 128, 51, 0, 1]


@given(arrays(float, (3, 5), elements=st.floats(0, 1)))
def test_what_is_unpacked_is_near_what_was_packed(weights: np.ndarray) -> None:
    packed = attention_records.pack(weights)
    if packed is None:
        assert not weights.any()
    else:
        assert attention_records.unpack(packed, (3, 5)) == pytest.approx(weights, abs=1 / 510 + 1e-12)


def test_no_weights_are_none() -> None:
    assert attention_records.pack(np.zeros((2, 3))) is None


def test_a_file_gives_back_every_sentence(tmp_path: Path) -> None:
    path = tmp_path / "predictions" / "attention.jsonl"
    hostile = ["\u2028", "\n", '"', "</script>", "क्षि", ""]
    sentences = [
        Attended(0, hostile, ["<eos>"], attention_records.pack(np.eye(1, 6))),
        Attended(7, ["a"], ["b", "<eos>"], None),
    ]
    attention_records.write(path, sentences)
    assert attention_records.read(path) == sentences
    assert attention_records.read(tmp_path / "none.jsonl") == []
