from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import DictConfig
from torch import Tensor, nn

from attnlab.nn.attention import Additive, Attention, CoverageSee, Dot, Final, General, LocalM, LocalP, Shift
from attnlab.nn.seq2seq import select
from attnlab.types import Memory
from networks import randomise, walk
from tiny_runs import SYNTHETIC, TINY, build_all

LN3 = math.log(3)
BELL = math.exp(-1 / 2)  # of a position σ away


def memory_of(*rows: list[float], padding: int = 1) -> Memory:
    """One sentence of these real states, and padding of large numbers."""
    states = torch.tensor([*rows, *[[99.0] * len(rows[0])] * padding])
    return Memory(states[None], (torch.arange(len(states)) < len(rows))[None])


def blank(attention: Attention) -> Attention:
    for parameter in attention.parameters():
        nn.init.zeros_(parameter)
    return attention


@pytest.mark.parametrize(
    ("variant", "window", "smallest"),
    [(partial(LocalP, size=3), 0, 1), (partial(LocalP, size=3), -2, 1), (LocalM, -1, 0)],
)
def test_a_window_that_holds_nothing_is_refused(variant: Any, window: int, smallest: int) -> None:
    with pytest.raises(ValueError, match=rf"attention\.window must be {smallest} or more, not {window}"):
        variant(query_size=2, memory_size=2, window=window)


# ------------------------------------------------------------------------------------------- monotonic


def test_the_window_moves_a_position_a_step() -> None:
    """All scores 0 and D = 1: equal weights on t - 1 … t + 1, as far as they are real; at last, none."""
    attention = blank(LocalM(query_size=1, memory_size=1, window=1))
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


def test_inside_the_window_the_score_decides() -> None:
    """D = 1 and t = 0: h = ln 3 and h = 0 are seen; h = 50 is not."""
    attention = LocalM(query_size=1, memory_size=1, window=1, score=Dot)
    weights = walk(attention, torch.ones(1, 2, 1), memory_of([LN3], [0.0], [50.0]))[1]
    assert weights[0, 0].tolist() == pytest.approx([3 / 4, 1 / 4, 0, 0])
    assert weights[0, 1].tolist() == pytest.approx([0, 0, 1, 0])


def test_hypotheses_count_their_steps() -> None:
    attention = LocalM(query_size=1, memory_size=1, window=1)
    memory = memory_of([1.0], [2.0])
    keys = attention.project(memory)
    _, _, state = attention(torch.ones(1, 3, 1), memory, keys, attention.begin(memory))
    state = select(state, torch.tensor([[0]]), torch.tensor([[2, 0]]))
    assert state.tolist() == [[[1], [1]]]


def test_a_window_wider_than_the_sentence_is_global() -> None:
    local, plain = LocalM(query_size=3, memory_size=2, window=20), General(query_size=3, memory_size=2)
    randomise(local)
    plain.load_state_dict(local.inner.state_dict())
    memory, queries = memory_of([1.0, 2.0], [-3.0, 1.0], [0.5, 0.0]), torch.randn(1, 5, 3)
    torch.testing.assert_close(walk(local, queries, memory)[1], walk(plain, queries, memory)[1])


def test_an_empty_window_has_finite_gradients() -> None:
    attention = LocalM(query_size=1, memory_size=1, window=1)
    queries = torch.ones(1, 7, 1, requires_grad=True)
    walk(attention, queries, memory_of([1.0], [2.0]))[0].sum().backward()
    assert queries.grad is not None
    assert queries.grad.isfinite().all()
    assert not queries.grad[0, 3:].any()


# ------------------------------------------------------------------------------------------ predictive


def predicted(window: int, length: int, padding: int = 1, share: float = 0.0) -> list[float]:
    """Weights by p = S σ(share) alone: all scores are 0."""
    attention = LocalP(query_size=1, memory_size=1, size=1, window=window)
    blank(attention)
    nn.init.constant_(attention.hidden.weight, LN3 / 2)  # tanh(½ ln 3) = ½
    nn.init.constant_(attention.place.weight, 2 * share)
    memory = memory_of(*[[5.0]] * length, padding=padding)
    return walk(attention, torch.ones(1, 1, 1), memory)[1].flatten().tolist()  # type: ignore[no-any-return]


def test_local_p_by_hand() -> None:
    """S = 4 and σ(0) = ½: p = 2, the second position. D = 2, so the bell's σ is 1."""
    assert predicted(2, 4) == pytest.approx([BELL / 4, 1 / 4, BELL / 4, BELL**4 / 4, 0])


def test_the_window_cuts_the_bell() -> None:
    """D = 1: three positions are seen, and one away is two σ away."""
    assert predicted(1, 4) == pytest.approx([BELL**4 / 3, 1 / 3, BELL**4 / 3, 0, 0])


def test_local_p_moves_with_its_query() -> None:
    """S = 6 and σ(ln 3) = ¾: p = 4½, between two positions that are one σ away."""
    assert predicted(1, 6, share=LN3) == pytest.approx([0, 0, 0, BELL / 2, BELL / 2, 0, 0])


@pytest.mark.parametrize("padding", [0, 1, 7])
def test_s_is_the_length_of_the_sentence_itself(padding: int) -> None:
    assert predicted(1, 2, padding) == pytest.approx([1 / 2, BELL**4 / 2] + [0] * padding)


def test_the_weights_of_local_p_sum_to_less_than_1() -> None:
    """By section 3.2 the bell multiplies the normalised weights: only a position at p keeps its own whole."""
    attention = LocalP(query_size=3, memory_size=2, size=5, window=2)
    randomise(attention)
    memory = Memory(torch.randn(7, 9, 2), torch.arange(9) < torch.tensor([[9], [8], [5], [3], [2], [1], [0]]))
    totals = walk(attention, torch.randn(7, 4, 3), memory)[1].sum(dim=-1)  # [B, T]
    assert (totals[:6] > 0).all()
    assert (totals < 1).all()
    assert not totals[6].any()


def test_all_queries_at_once() -> None:
    attention = LocalP(query_size=3, memory_size=2, size=5, window=2)
    memory, queries = memory_of([1.0, 2.0], [-3.0, 1.0], [0.5, 0.0]), torch.randn(1, 4, 3)
    at_once = attention(queries, memory, attention.project(memory))[1]
    torch.testing.assert_close(at_once, walk(attention, queries, memory)[1])


@given(st.integers(1, 4), st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=8))
@torch.no_grad()
def test_local_p_from_its_equations(window: int, states: list[float]) -> None:
    torch.manual_seed(len(states))
    attention = LocalP(query_size=2, memory_size=1, size=3, window=window, score=General)
    randomise(attention)
    query = torch.randn(2)
    inner: Any = attention.inner
    scores = [float(query @ (inner.key.weight @ torch.tensor([h]))) for h in states]
    hidden = torch.tanh(attention.hidden.weight @ query)
    p = len(states) * float(torch.sigmoid(attention.place.weight[0] @ hidden))
    seen = [s for s in range(1, len(states) + 1) if p - window <= s <= p + window]
    total = sum(math.exp(scores[s - 1]) for s in seen)
    sigma = window / 2
    expected = [
        math.exp(scores[s - 1]) / total * math.exp(-((s - p) ** 2) / (2 * sigma**2)) if s in seen else 0.0
        for s in range(1, len(states) + 1)
    ]
    memory = memory_of(*[[h] for h in states])
    weights = walk(attention, query[None, None], memory)[1]
    assert weights.flatten().tolist() == pytest.approx([*expected, 0], abs=1e-5)


# ------------------------------------------------------------------------------------- the inner score


@pytest.mark.parametrize("variant", [LocalM, LocalP, Shift])
@pytest.mark.parametrize("score", [Final, partial(CoverageSee, size=3), partial(LocalP, size=3, window=1)])
def test_only_a_variant_of_scores_alone_fits_inside(
    variant: Callable[..., Attention], score: Callable[..., Attention]
) -> None:
    own = {LocalM: {"window": 2}, LocalP: {"window": 2, "size": 3}}
    name = score.func.__name__ if isinstance(score, partial) else score.__name__
    with pytest.raises(ValueError, match=rf"cannot be {name}: .* Use attention@attention\.score=additive"):
        variant(query_size=2, memory_size=2, score=score, **own.get(variant, {}))  # type: ignore[call-overload]


@pytest.mark.parametrize("option", ["local_m", "local_p", "shift"])
@pytest.mark.parametrize(("score", "variant"), [("additive", Additive), ("dot", Dot), ("general", General)])
def test_the_configuration_chooses_the_score(
    composed: Callable[..., DictConfig], option: str, score: str, variant: type[Attention]
) -> None:
    config = composed(*TINY, *SYNTHETIC, f"attention={option}", f"attention@attention.score={score}")
    module, data = build_all(config)
    attention: Any = module.network.decoder.attention
    assert type(attention.inner) is variant
    weights: Tensor = module.decode(data.examples("train")[[0, 1]])[0].weights
    assert weights.isfinite().all()
