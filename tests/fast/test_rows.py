"""Packing of batches whose sentences end at different steps."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.fast.rows import Rows
from networks import random_batch


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=5))
def test_pad_inverts_pack(counts: list[int]) -> None:
    counts.sort(reverse=True)
    rows = Rows(tuple(counts), 4)
    padded = torch.arange(1.0, len(counts) * 4 * 2 + 1).view(len(counts), 4, 2)
    packed = rows.pack(padded)
    assert len(packed) == rows.total == sum(counts)
    for step, count, rows_of_step in zip(padded, counts, rows.slices, strict=True):
        assert torch.equal(packed[rows_of_step], step[:count])
    for step, count, back in zip(padded, counts, rows.pad(packed), strict=True):
        assert torch.equal(back[:count], step[:count])
        assert not back[count:].any()


@pytest.mark.parametrize(
    ("lengths", "counts"),
    [
        ([4] + 8 * [3] + 8 * [0], [17, 16, 16, 16, 8]),  # 17, 9, 9, 9 and 1, rounded up to multiples of 8
        (8 * [0] + 8 * [3] + [4], [17, 17, 17, 17, 17]),
        ([0], [1]),
        (16 * [1] + [3], [17, 17, 17, 17]),
    ],
)
def test_active_counts_cover_every_label(lengths: list[int], counts: list[int]) -> None:
    assert Rows.of(random_batch([2] * len(lengths), lengths).labels) == Rows(tuple(counts), len(lengths))
