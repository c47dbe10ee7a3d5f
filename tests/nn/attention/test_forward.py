import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.nn.attention import Attention, Dot, Forward
from attnlab.nn.attention.normalisers import Entmax
from attnlab.types import Memory
from networks import walk


class QueryScores(Attention):
    """Mechanism whose scores are the first S numbers of the query."""

    def score(self, query: Tensor, keys: Tensor, state: None) -> Tensor:
        return query[..., : keys.size(1)]


def weights_of(scores: list[list[float]], **settings: object) -> list[list[float]]:
    """Return the weights of scores [T, S]; the sentence is followed by a position of padding."""
    queries = torch.tensor([[[*row, 9.0] for row in scores]], dtype=torch.float64)
    width = queries.size(2)
    memory = Memory(torch.randn(1, width, 1).double(), (torch.arange(width) < width - 1)[None])
    attention = Forward(query_size=width, memory_size=1, score=QueryScores, **settings)
    return walk(attention, queries, memory)[1][0].tolist()


@given(steps=st.integers(1, 4), width=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_weights_sum_over_all_monotonic_paths(steps: int, width: int, seed: int) -> None:
    """α_T of a position is the share of paths that end there; a path weighs the product of its softmaxes."""
    torch.manual_seed(seed)
    scores = 2 * torch.randn(steps, width, dtype=torch.float64)
    shares = scores.softmax(dim=-1)
    ends = [0.0] * width
    for path in itertools.product(range(width), repeat=steps):
        if all(0 <= b - a <= 1 for a, b in itertools.pairwise((0, *path))):
            ends[path[-1]] += math.prod(shares[i, j].item() for i, j in enumerate(path))
    expected = [share / sum(ends) for share in ends]
    assert weights_of(scores.tolist())[-1] == pytest.approx([*expected, 0])


def test_normaliser_applies_to_reachable_positions() -> None:
    """Sparsemax of 0 and ½ is 1/4 and 3/4; then (1/4, 1, 3/4) times (1/3, 1/3, 1/3)."""
    rows = weights_of([[0.0, 0.5, 50.0], [1.0, 1.0, 1.0]], normaliser=Entmax(2))
    assert rows == [pytest.approx([1 / 4, 3 / 4, 0, 0]), pytest.approx([1 / 8, 4 / 8, 3 / 8, 0])]


@pytest.mark.parametrize("temperature", [0.1, 0.5, 3.0])
def test_temperature_scales_only_the_scores(temperature: float) -> None:
    rows = weights_of([[0.0] * 4] * 2, normaliser=Entmax(temperature=temperature))
    assert rows[1] == pytest.approx([1 / 4, 1 / 2, 1 / 4, 0, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_many_steps_of_large_scores_stay_finite(dtype: torch.dtype) -> None:
    attention = Forward(query_size=2, memory_size=2, score=Dot).to(dtype)
    queries = (100 * torch.randn(2, 60, 2)).to(dtype).requires_grad_()
    states = (100 * torch.randn(2, 20, 2)).to(dtype).requires_grad_()
    memory = Memory(states, torch.arange(20) < torch.tensor([[20], [1]]))
    weights = walk(attention, queries, memory)[1]
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 60))
    (weights * torch.randn_like(weights)).sum().backward()
    assert queries.grad.isfinite().all()


def test_inner_mechanism_with_its_own_forward_is_rejected() -> None:
    class Gated(Dot):
        def forward(self, query: Tensor, memory: Memory, keys: Tensor, state: object = None) -> Any:
            context, weights, state = super().forward(query, memory, keys, state)
            return context / 2, weights, state

    with pytest.raises(ValueError, match="cannot be Gated: the inner mechanism must have scores"):
        Forward(query_size=2, memory_size=2, score=Gated)
