import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.nn.attention import MILk, MoChA, Monotonic
from attnlab.nn.attention.monotonic import chunkwise_weights, expected_alignment, hard_alignment
from attnlab.nn.attention.normalisers import Entmax
from attnlab.types import Memory
from networks import random_memory, randomise

B, S, H, D, A = 2, 5, 7, 11, 13
LENGTHS = [5, 2]
every = pytest.mark.parametrize("mechanism", [Monotonic, MoChA, MILk])
energies = st.floats(-8, 8)
LN3 = math.log(3)


def make(mechanism: type[Monotonic], **options: Any) -> tuple[Monotonic, Memory]:
    """Return a mechanism in fp64 with large parameters, and a memory with random values at padding."""
    attention = mechanism(query_size=H, memory_size=D, size=A, **options)
    randomise(attention)
    memory = random_memory(LENGTHS, D)
    return attention.double(), memory._replace(states=memory.states.double())


def run(attention: Monotonic, memory: Memory, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Return weights and states [B, T, S] for queries [B, T, H], one step after another."""
    keys, state = attention.project(memory), attention.begin(memory)
    weights, states = [], []
    for query in queries.split(1, dim=1):
        _, weight, state = attention(query, memory, keys, state)
        weights.append(weight)
        states.append(state)
    return torch.cat(weights, dim=1), torch.cat(states, dim=1)


def one_hot(place: int, size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)[place]


def double_loop(p: list[float], previous: list[float]) -> list[float]:
    """Return α_j = p_j Σ_{k≤j} α'_k Π_{k≤l<j} (1 - p_l), computed literally."""
    return [
        p[j] * sum(previous[k] * math.prod(1 - p[m] for m in range(k, j)) for k in range(j + 1))
        for j in range(len(p))
    ]


@given(rows=st.lists(st.tuples(energies, st.floats(0, 1)), min_size=1, max_size=9))
@settings(max_examples=30)
def test_expected_alignment_matches_the_equation(rows: list[tuple[float, float]]) -> None:
    e, shares = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    previous = shares / len(rows)
    expected = double_loop(torch.sigmoid(e).tolist(), previous.tolist())
    assert expected_alignment(e, previous).tolist() == pytest.approx(expected, abs=1e-15)


@given(e=st.lists(energies, min_size=1, max_size=5), data=st.data())
@settings(max_examples=30)
def test_expected_alignment_is_the_mean_of_hard_alignments(e: list[float], data: st.DataObject) -> None:
    """Enumerate all outcomes of S Bernoulli variables, weighted by their probabilities."""
    start = data.draw(st.integers(0, len(e) - 1))
    p = torch.sigmoid(torch.tensor(e, dtype=torch.float64))
    previous = one_hot(start, len(e))
    mean = torch.zeros_like(previous)
    for outcomes in product([0.0, 1.0], repeat=len(e)):
        outcome = torch.tensor(outcomes, dtype=torch.float64)
        probability = torch.where(outcome == 1, p, 1 - p).prod()
        mean += probability * hard_alignment(outcome, previous)
    torch.testing.assert_close(expected_alignment(torch.logit(p), previous), mean, rtol=0, atol=1e-12)


def test_expected_alignment_of_a_long_memory_is_exact() -> None:
    """Cumulative products underflow here, and the quotient of the paper would be 0 / 0."""
    e = torch.full((400,), 30.0)
    previous = torch.full((400,), 1 / 400)
    torch.testing.assert_close(expected_alignment(e, previous), previous)
    halves = torch.cat([torch.full((399,), -1e4), torch.tensor([1e4])])
    assert expected_alignment(halves, previous)[-1].item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (1, 1), (2, 3), (3, 3)],  # the head may stay at its position
)
def test_hard_alignment_known_values(start: int, stop: int) -> None:
    e = torch.tensor([-0.1, 0.1, -0.1, 3.0, 0.0])
    assert torch.equal(hard_alignment(e, one_hot(start, 5).float()), one_hot(stop, 5).float())


def test_head_past_the_end_stays_there() -> None:
    nowhere = hard_alignment(torch.tensor([5.0, -1.0, 0.0]), torch.tensor([0.0, 1.0, 0.0]))
    assert nowhere.tolist() == [0, 0, 0]  # p = ½ is not above ½
    assert hard_alignment(torch.full((3,), 5.0), nowhere).tolist() == [0, 0, 0]
    assert expected_alignment(torch.full((3,), 5.0), nowhere).tolist() == [0, 0, 0]


@every
@torch.no_grad()
def test_head_never_moves_backwards(mechanism: type[Monotonic]) -> None:
    attention, _ = make(mechanism)
    attention.eval().offset.zero_()
    attention.gain.fill_(5.0)
    sentences, places = 40, 9
    lengths = torch.randint(1, places + 1, (sentences, 1))
    states = torch.randn(sentences, places, D, dtype=torch.float64)
    memory = Memory(states, torch.arange(places) < lengths)
    weights, heads = run(attention, memory, 3 * torch.randn(sentences, 6, H, dtype=torch.float64))
    assert set(heads.flatten().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(weights.sum(dim=-1), heads.sum(dim=-1))
    assert not weights.transpose(1, 2)[~memory.mask].any()
    positions = torch.where(heads.any(dim=-1), heads.argmax(dim=-1), places)  # past the end: S
    assert (positions.diff(dim=1) >= 0).all()
    assert (positions.diff(dim=1) > 0).any()
    assert len(positions.unique()) > 5


@torch.no_grad()
def test_energies_match_the_equation() -> None:
    attention, memory = make(Monotonic)
    query = torch.randn(B, 3, H, dtype=torch.float64)
    energies = attention.score(query, attention.project(memory), None)
    v = attention.energy.weight[0]
    W, U = attention.query, attention.key
    for b, q, j in product(range(B), range(3), range(S)):
        b_vector = W.bias + U.bias
        hidden = torch.tanh(W.weight @ query[b, q] + U.weight @ memory.states[b, j] + b_vector)
        expected = attention.gain * (v @ hidden) / v.square().sum().sqrt() + attention.offset
        torch.testing.assert_close(energies[b, q, j], expected)


def test_initial_gain_and_offset() -> None:
    attention = Monotonic(query_size=H, memory_size=D, size=16, offset=-2)  # an integer, as in a config
    assert attention.gain.item() == 1 / 4
    assert attention.offset.item() == -2
    assert Monotonic(query_size=H, memory_size=D, size=16).offset.item() == -4


@every
def test_weights_are_soft_in_training_and_hard_in_evaluation(mechanism: type[Monotonic]) -> None:
    attention, memory = make(mechanism, noise=0.0)
    with torch.no_grad():
        attention.offset.fill_(0.1)
    queries = torch.randn(B, 2, H, dtype=torch.float64)
    _, soft = run(attention, memory, queries)
    assert ((soft[0] > 0) & (soft[0] < 1)).all()
    _, hard = run(attention.eval(), memory, queries)
    assert set(hard.flatten().tolist()) <= {0.0, 1.0}


def test_noise_is_added_in_training_only() -> None:
    attention, memory = make(Monotonic, noise=0.7)
    query = torch.randn(B, 3, H, dtype=torch.float64)
    keys, state = attention.project(memory), attention.begin(memory)
    torch.manual_seed(5)
    weights, _ = attention.weigh(query, memory, keys, state)
    torch.manual_seed(5)
    scores = attention.score(query, keys, state).masked_fill(~memory.mask[:, None], -torch.inf)
    expected = expected_alignment(scores + 0.7 * torch.randn_like(scores), state)
    torch.testing.assert_close(weights, expected)
    assert not torch.equal(weights, attention.weigh(query, memory, keys, state)[0])
    attention.eval()
    repeats = [attention.weigh(query, memory, keys, state)[0] for _ in range(5)]
    assert all(torch.equal(repeats[0], other) for other in repeats)


@every
def test_gaps_in_the_mask_are_skipped(mechanism: type[Monotonic]) -> None:
    """Removing the masked positions gives the same weights for the others."""
    attention, memory = make(mechanism, noise=0.0)
    if isinstance(attention, MoChA):
        attention.chunk = 1  # a wider window spans the gap
    real = torch.tensor([False, True, True, False, True])
    queries = torch.randn(B, 3, H, dtype=torch.float64)
    for mode in (True, False):
        attention.train(mode)
        with_gaps, _ = run(attention, Memory(memory.states, real.expand(B, S)), queries)
        packed = Memory(memory.states[:, real], torch.ones(B, 3, dtype=torch.bool))
        torch.testing.assert_close(with_gaps[..., real], run(attention, packed, queries)[0])
        assert not with_gaps[..., ~real].any()


def chunk_weights(heads: list[float], scores: list[float], chunk: int) -> list[float]:
    rows = [torch.tensor([[row]], dtype=torch.float64) for row in (heads, scores)]
    mask = torch.ones(1, 1, len(scores), dtype=torch.bool)
    return chunkwise_weights(*rows, mask, chunk, Entmax())[0, 0].tolist()


def test_chunk_with_very_low_scores_keeps_its_weights() -> None:
    assert chunk_weights([0, 0, 1], [2000.0, 0.0, LN3], 2) == pytest.approx([0, 1 / 4, 3 / 4])


@given(
    rows=st.lists(st.tuples(st.floats(0, 1), st.floats(-5, 5)), min_size=1, max_size=8),
    chunk=st.integers(1, 10),
)
@settings(max_examples=30)
def test_chunks_match_the_equation(rows: list[tuple[float, float]], chunk: int) -> None:
    """β_j = Σ_{j≤k<j+w} α_k exp(u_j) / Σ_{k-w<l≤k} exp(u_l), computed literally."""
    heads, scores = (list(column) for column in zip(*rows, strict=True))
    size = len(rows)
    expected = [
        sum(
            heads[k] * math.exp(scores[j])
            / sum(math.exp(scores[m]) for m in range(max(0, k - chunk + 1), k + 1))
            for k in range(j, min(j + chunk, size))
        )
        for j in range(size)
    ]  # fmt: skip
    assert chunk_weights(heads, scores, chunk) == pytest.approx(expected)


def test_chunk_normaliser_respects_the_mask() -> None:
    heads, scores = torch.tensor([[[0.0, 0.0, 0.0, 1.0]]]), torch.tensor([[[0.0, 0.0, 7.0, LN3]]])
    mask = torch.tensor([[[True, True, False, True]]])
    assert chunkwise_weights(heads, scores, mask, 3, Entmax(temperature=0.5))[0, 0].tolist() == pytest.approx(
        [0, 1 / 10, 0, 9 / 10]
    )


def test_chunk_of_one_equals_monotonic_attention() -> None:
    attention, memory = make(MoChA, chunk=1, noise=0.0)
    queries = torch.randn(B, 3, H, dtype=torch.float64)
    for mode in (True, False):
        weights, states = run(attention.train(mode), memory, queries)
        assert torch.equal(weights, states)


def test_state_is_the_head_position() -> None:
    attention, memory = make(MoChA, chunk=3, noise=0.0)
    plain = Monotonic(query_size=H, memory_size=D, size=A, noise=0.0).double()
    head_parameters = {k: v for k, v in attention.state_dict().items() if not k.startswith("inner")}
    plain.load_state_dict(head_parameters)
    queries = torch.randn(B, 3, H, dtype=torch.float64)
    weights, states = run(attention, memory, queries)
    torch.testing.assert_close(states, run(plain, memory, queries)[0])
    assert not torch.allclose(weights, states)


def lookback(heads: list[float], scores: list[float]) -> list[float]:
    """Return β_j = Σ_{k≥j} α_k exp(u_j) / Σ_{l≤k} exp(u_l), computed literally."""
    return [
        sum(
            heads[k] * math.exp(scores[j]) / sum(math.exp(u) for u in scores[: k + 1])
            for k in range(j, len(heads))
        )
        for j in range(len(heads))
    ]


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_infinite_lookback_equals_the_equation_of_the_paper(training: bool) -> None:
    attention, memory = make(MILk, noise=0.0)
    attention.train(training).offset.zero_()
    queries = torch.randn(B, 3, H, dtype=torch.float64)
    weights, heads = run(attention, memory, queries)
    scores = attention.inner.score(queries, attention.project(memory).chunk(2, dim=-1)[1], None)
    for row, length in enumerate(LENGTHS):
        for step in range(3):
            expected = lookback(heads[row, step, :length].tolist(), scores[row, step, :length].tolist())
            assert weights[row, step, :length].tolist() == pytest.approx(expected)
            assert not weights[row, step, length:].any()
