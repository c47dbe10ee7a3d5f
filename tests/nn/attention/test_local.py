import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from attnlab.nn.attention import Attention, Dot, General, LocalM, LocalP
from attnlab.nn.seq2seq import select
from attnlab.types import Memory
from networks import randomise, walk

LN3 = math.log(3)


def memory_of(*rows: list[float], padding: int = 1) -> Memory:
    """Return one sentence with these states, followed by padding with large values."""
    states = torch.tensor([*rows, *[[99.0] * len(rows[0])] * padding])
    return Memory(states[None], (torch.arange(len(states)) < len(rows))[None])


def with_zero_parameters(attention: Attention) -> Attention:
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    return attention


# ------------------------------------------------------------------------------------------- monotonic


def test_window_moves_one_position_per_step() -> None:
    """Equal scores and D = 1: equal weights on the real positions of t - 1 … t + 1, finally on none."""
    attention = with_zero_parameters(LocalM(query_size=1, memory_size=1, window=1))
    contexts, weights = walk(attention, torch.zeros(1, 6, 1), memory_of([3.0], [6.0], [12.0]))
    expected = [
        [1 / 2, 1 / 2, 0, 0],
        [1 / 3, 1 / 3, 1 / 3, 0],
        [0, 1 / 2, 1 / 2, 0],
        [0, 0, 1, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ]
    torch.testing.assert_close(weights[0], torch.tensor(expected))
    assert contexts.flatten().tolist() == pytest.approx([4.5, 7, 9, 12, 0, 0])


def test_weights_within_the_window_follow_the_scores() -> None:
    """At D = 1 and t = 0, h = ln 3 and h = 0 are in the window and h = 50 is not."""
    attention = LocalM(query_size=1, memory_size=1, window=1, score=Dot)
    weights = walk(attention, torch.ones(1, 2, 1), memory_of([LN3], [0.0], [50.0]))[1]
    assert weights[0, 0].tolist() == pytest.approx([3 / 4, 1 / 4, 0, 0])
    assert weights[0, 1].tolist() == pytest.approx([0, 0, 1, 0])


def test_state_follows_reordered_hypotheses() -> None:
    attention = LocalM(query_size=1, memory_size=1, window=1)
    memory = memory_of([1.0], [2.0])
    keys = attention.project(memory)
    _, _, state = attention(torch.ones(1, 3, 1), memory, keys, attention.begin(memory))
    state = select(state, torch.tensor([[0]]), torch.tensor([[2, 0]]))
    assert state.tolist() == [[[1], [1]]]


def test_window_wider_than_the_sentence_equals_global_attention() -> None:
    local, plain = LocalM(query_size=3, memory_size=2, window=20), General(query_size=3, memory_size=2)
    randomise(local)
    plain.load_state_dict(local.inner.state_dict())
    memory, queries = memory_of([1.0, 2.0], [-3.0, 1.0], [0.5, 0.0]), torch.randn(1, 5, 3)
    torch.testing.assert_close(walk(local, queries, memory)[1], walk(plain, queries, memory)[1])


def test_empty_window_has_finite_gradients() -> None:
    attention = LocalM(query_size=1, memory_size=1, window=1)
    queries = torch.ones(1, 7, 1, requires_grad=True)
    walk(attention, queries, memory_of([1.0], [2.0]))[0].sum().backward()
    assert queries.grad.isfinite().all()
    assert not queries.grad[0, 3:].any()


# ------------------------------------------------------------------------------------------ predictive


@pytest.mark.parametrize("padding", [0, 1, 7])
def test_centre_is_relative_to_the_unpadded_length(padding: int) -> None:
    """S = 2 and σ(0) = ½ give p = 1, the first position; the second is 2 standard deviations from it."""
    attention = with_zero_parameters(LocalP(query_size=1, memory_size=1, size=1, window=1))
    memory = memory_of([5.0], [5.0], padding=padding)
    weights = walk(attention, torch.ones(1, 1, 1), memory)[1].flatten().tolist()
    assert weights == pytest.approx([1 / 2, math.exp(-2) / 2] + [0] * padding)


@given(st.integers(1, 4), st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=8))
@torch.no_grad()
def test_local_p_matches_its_equations(window: int, states: list[float]) -> None:
    torch.manual_seed(len(states))
    attention = LocalP(query_size=2, memory_size=1, size=3, window=window, score=General)
    randomise(attention)
    query = torch.randn(2)
    inner: Any = attention.inner
    scores = [float(query @ (inner.key.weight @ torch.tensor([h]))) for h in states]
    hidden = torch.tanh(attention.hidden.weight @ query)
    p = len(states) * float(torch.sigmoid(attention.place.weight[0] @ hidden))
    window_positions = [s for s in range(1, len(states) + 1) if p - window <= s <= p + window]
    total = sum(math.exp(scores[s - 1]) for s in window_positions)
    sigma = window / 2
    expected = [
        math.exp(scores[s - 1]) / total * math.exp(-((s - p) ** 2) / (2 * sigma**2))
        if s in window_positions
        else 0.0
        for s in range(1, len(states) + 1)
    ]
    memory = memory_of(*[[h] for h in states])
    weights = walk(attention, query[None, None], memory)[1]
    assert weights.flatten().tolist() == pytest.approx([*expected, 0], abs=1e-5)
