from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.nn.attention import MoChA, Monotonic
from attnlab.nn.attention.monotonic import chunkwise_weights, expected_alignment, hard_alignment, shift
from attnlab.nn.attention.normalisers import Softmax
from attnlab.types import Memory
from networks import randomise

B, S, H, D, A = 2, 5, 7, 11, 13
LENGTHS = [5, 2]
both = pytest.mark.parametrize("variant", [Monotonic, MoChA])
energies = st.floats(-8, 8)
LN3 = math.log(3)


def make(variant: type[Monotonic], **options: Any) -> tuple[Monotonic, Memory]:
    """In double precision, with large weights, and a memory with rubbish at its padding."""
    attention = variant(query_size=H, memory_size=D, size=A, **options)
    randomise(attention)
    mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    return attention.double(), Memory(torch.randn(B, S, D, dtype=torch.float64), mask)


def run(attention: Monotonic, memory: Memory, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and states [B, T, S] of queries [B, T, H], one after the other."""
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
    """α_j = p_j Σ_{k≤j} α'_k Π_{k≤l<j} (1 - p_l), as it is written."""
    return [
        p[j] * sum(previous[k] * math.prod(1 - p[m] for m in range(k, j)) for k in range(j + 1))
        for j in range(len(p))
    ]


# ------------------------------------------------------------------------- where the head is expected to stop


def test_expected_alignment_by_hand() -> None:
    """Heads or tails at each of three positions, twice: the second time from where the first has stopped."""
    even = torch.zeros(3)
    first = expected_alignment(even, torch.tensor([1.0, 0.0, 0.0]))
    assert first.tolist() == [1 / 2, 1 / 4, 1 / 8]  # and 1/8 has run past the end
    second = expected_alignment(even, first)
    # q = 1/2;  1/2 · 1/2 + 1/4 = 1/2;  1/2 · 1/2 + 1/8 = 3/8
    assert second.tolist() == [1 / 4, 1 / 4, 3 / 16]


def test_expected_alignment_of_unequal_chances_by_hand() -> None:
    """p = 1/4, 3/4, 1/2: 1/4 stop; of the 3/4 that go on 3/4 stop; of the 3/16 that go on half."""
    alpha = expected_alignment(torch.tensor([-LN3, LN3, 0.0]), torch.tensor([1.0, 0.0, 0.0]))
    assert alpha.tolist() == pytest.approx([1 / 4, 9 / 16, 3 / 32])


@given(rows=st.lists(st.tuples(energies, st.floats(0, 1)), min_size=1, max_size=9))
@settings(max_examples=30)
def test_expected_alignment_is_the_double_loop(rows: list[tuple[float, float]]) -> None:
    e, shares = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    previous = shares / len(rows)
    expected = double_loop(torch.sigmoid(e).tolist(), previous.tolist())
    assert expected_alignment(e, previous).tolist() == pytest.approx(expected, abs=1e-15)


@given(e=st.lists(energies, min_size=1, max_size=5), data=st.data())
@settings(max_examples=30)
def test_expectation_is_the_mean_of_all_hard_outcomes(e: list[float], data: st.DataObject) -> None:
    """Every way to toss S coins, weighed by its probability."""
    start = data.draw(st.integers(0, len(e) - 1))
    p = torch.sigmoid(torch.tensor(e, dtype=torch.float64))
    previous = one_hot(start, len(e))
    mean = torch.zeros_like(previous)
    for tosses in product([0.0, 1.0], repeat=len(e)):
        outcome = torch.tensor(tosses, dtype=torch.float64)
        chance = torch.where(outcome == 1, p, 1 - p).prod()
        mean += chance * hard_alignment(outcome, previous)
    torch.testing.assert_close(expected_alignment(torch.logit(p), previous), mean, rtol=0, atol=1e-12)


def test_expected_alignment_is_the_quotient_of_the_paper_where_that_can_be_computed() -> None:
    """Appendix C: α = p · cumprod(1 - p) · cumsum(α' / cumprod(1 - p)), the products exclusive."""
    e = torch.randn(4, 9, dtype=torch.float64)
    previous = torch.rand(4, 9, dtype=torch.float64) / 9
    p = torch.sigmoid(e)
    passed = torch.cat([torch.ones(4, 1), (1 - p)[:, :-1].cumprod(dim=-1)], dim=-1)
    expected = p * passed * (previous / passed).cumsum(dim=-1)
    torch.testing.assert_close(expected_alignment(e, previous), expected)


def test_a_long_memory_of_certain_stops_stays_exact() -> None:
    """Here cumulative products are far below the smallest number, and the quotient would be 0 / 0."""
    e = torch.full((400,), 30.0)
    previous = torch.full((400,), 1 / 400)
    torch.testing.assert_close(expected_alignment(e, previous), previous)
    halves = torch.cat([torch.full((399,), -1e4), torch.tensor([1e4])])
    assert expected_alignment(halves, previous)[-1].item() == pytest.approx(1)


@given(signs=st.lists(st.sampled_from([-1e4, 1e4]), min_size=1, max_size=9), data=st.data())
@settings(max_examples=30)
def test_certain_energies_make_soft_and_hard_the_same(signs: list[float], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(signs) - 1))
    e, previous = torch.tensor(signs), one_hot(start, len(signs)).float()
    assert torch.equal(expected_alignment(e, previous), hard_alignment(e, previous))


def test_expected_alignment_gradients() -> None:
    e = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    previous = (torch.rand(2, 6, dtype=torch.float64) / 6).requires_grad_()
    assert torch.autograd.gradcheck(expected_alignment, (e, previous))


@pytest.mark.parametrize("size", [1e4, -1e4, torch.inf, -torch.inf])
def test_huge_energies_have_finite_gradients(size: float) -> None:
    e = torch.tensor([0.0, size, 1.0, size, 0.0], requires_grad=True)
    alpha = expected_alignment(e, torch.tensor([0.5, 0.0, 0.5, 0.0, 0.0], requires_grad=True))
    alpha.square().sum().backward()
    assert alpha.isfinite().all()
    assert e.grad is not None
    assert e.grad.isfinite().all()


# ----------------------------------------------------------------------------------------- where it stops


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (1, 1), (2, 3), (3, 3)],  # it may stop again where it stands
)
def test_hard_alignment_by_hand(start: int, stop: int) -> None:
    e = torch.tensor([-0.1, 0.1, -0.1, 3.0, 0.0])
    assert torch.equal(hard_alignment(e, one_hot(start, 5).float()), one_hot(stop, 5).float())


def test_a_head_that_has_run_past_the_end_stays_there() -> None:
    nowhere = hard_alignment(torch.tensor([5.0, -1.0, 0.0]), torch.tensor([0.0, 1.0, 0.0]))
    assert nowhere.tolist() == [0, 0, 0]  # p = ½ is not above ½
    assert hard_alignment(torch.full((3,), 5.0), nowhere).tolist() == [0, 0, 0]
    assert expected_alignment(torch.full((3,), 5.0), nowhere).tolist() == [0, 0, 0]


@both
@torch.no_grad()
def test_the_head_never_turns_back(variant: type[Monotonic]) -> None:
    attention, _ = make(variant)
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
    where = torch.where(heads.any(dim=-1), heads.argmax(dim=-1), places)  # past the end: S
    assert (where.diff(dim=1) >= 0).all()
    assert (where.diff(dim=1) > 0).any()
    assert len(where.unique()) > 5


# ----------------------------------------------------------------------------------------------- the module


@torch.no_grad()
def test_energies_are_those_of_the_paper() -> None:
    attention, memory = make(Monotonic)
    query = torch.randn(B, 3, H, dtype=torch.float64)
    found = attention.score(query, attention.project(memory), None)
    v = attention.energy.weight[0]
    W, U = attention.query, attention.key
    for b, q, j in product(range(B), range(3), range(S)):
        b_vector = W.bias + U.bias
        hidden = torch.tanh(W.weight @ query[b, q] + U.weight @ memory.states[b, j] + b_vector)
        expected = attention.gain * (v @ hidden) / v.square().sum().sqrt() + attention.offset
        torch.testing.assert_close(found[b, q, j], expected)


def test_the_start_of_the_energies() -> None:
    attention = Monotonic(query_size=H, memory_size=D, size=16, offset=-2)  # whole, as typed
    assert attention.gain.item() == 1 / 4
    assert attention.offset.item() == -2
    assert Monotonic(query_size=H, memory_size=D, size=16).offset.item() == -4


@torch.no_grad()
def test_training_is_the_double_loop_over_many_targets() -> None:
    attention, memory = make(Monotonic, noise=0.0)
    queries = torch.randn(B, 4, H, dtype=torch.float64)
    found, _ = run(attention, memory, queries)
    p = torch.sigmoid(attention.score(queries, attention.project(memory), None))
    for b, length in enumerate(LENGTHS):
        alpha = [1.0] + [0.0] * (length - 1)
        for i in range(4):
            alpha = double_loop(p[b, i, :length].tolist(), alpha)
            assert found[b, i].tolist() == pytest.approx([*alpha, *[0.0] * (S - length)], abs=1e-12)


@both
def test_the_mode_chooses_soft_or_hard(variant: type[Monotonic]) -> None:
    attention, memory = make(variant, noise=0.0)
    with torch.no_grad():
        attention.offset.fill_(0.1)
    queries = torch.randn(B, 2, H, dtype=torch.float64)
    _, soft = run(attention, memory, queries)
    assert ((soft[0] > 0) & (soft[0] < 1)).all()
    _, hard = run(attention.eval(), memory, queries)
    assert set(hard.flatten().tolist()) <= {0.0, 1.0}


def test_noise_is_of_the_given_size_and_for_training_alone() -> None:
    attention, memory = make(Monotonic, noise=0.7)
    query = torch.randn(B, 3, H, dtype=torch.float64)
    keys, state = attention.project(memory), attention.begin(memory)
    torch.manual_seed(5)
    found = attention.weigh(query, memory, keys, state)
    torch.manual_seed(5)
    scores = attention.score(query, keys, state).masked_fill(~memory.mask[:, None], -torch.inf)
    expected = expected_alignment(scores + 0.7 * torch.randn_like(scores), state)
    torch.testing.assert_close(found, expected)
    assert not torch.equal(found, attention.weigh(query, memory, keys, state))
    attention.eval()
    weights = [attention.weigh(query, memory, keys, state) for _ in range(5)]
    assert all(torch.equal(weights[0], other) for other in weights)


@both
def test_gaps_in_the_memory_are_passed_over(variant: type[Monotonic]) -> None:
    """A mask need not be a prefix: taking the unreal positions out gives the same weights for the others."""
    attention, memory = make(variant, noise=0.0)
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


@both
def test_gradients_over_two_targets(variant: type[Monotonic]) -> None:
    """The check moves the leaves where they are, so what reads them need not be handed them."""
    attention, memory = make(variant, noise=0.0)
    queries = torch.randn(B, 2, H, dtype=torch.float64, requires_grad=True)
    leaves = (memory.states.requires_grad_(), queries, *attention.parameters())
    assert torch.autograd.gradcheck(lambda *_: run(attention, memory, queries)[0], leaves)


# ------------------------------------------------------------------------------------------------- chunks


def spread(heads: list[float], scores: list[float], chunk: int) -> list[float]:
    rows = [torch.tensor([[row]], dtype=torch.float64) for row in (heads, scores)]
    mask = torch.ones(1, 1, len(scores), dtype=torch.bool)
    return chunkwise_weights(*rows, mask, chunk, Softmax())[0, 0].tolist()


def test_a_chunk_by_hand() -> None:
    """The head at the third place, windows of two: odds of 1 : 3 for the second and third."""
    assert spread([0, 0, 1, 0], [9.0, 0.0, LN3, 9.0], 2) == pytest.approx([0, 1 / 4, 3 / 4, 0])
    assert spread([1, 0, 0, 0], [9.0, 0.0, LN3, 9.0], 2) == pytest.approx([1, 0, 0, 0])  # cut at the start
    # half a head at the second place (1/4 · ½ + 3/4 · ½), half at the third (1/4 · ½ + 3/4 · ½)
    assert spread([0, 0.5, 0.5], [0.0, LN3, 2 * LN3], 2) == pytest.approx([1 / 8, 3 / 8 + 1 / 8, 3 / 8])


def test_a_chunk_far_below_the_largest_score_keeps_its_odds() -> None:
    assert spread([0, 0, 1], [2000.0, 0.0, LN3], 2) == pytest.approx([0, 1 / 4, 3 / 4])


@given(
    rows=st.lists(st.tuples(st.floats(0, 1), st.floats(-5, 5)), min_size=1, max_size=8),
    chunk=st.integers(1, 10),
)
@settings(max_examples=30)
def test_chunks_are_the_double_loop(rows: list[tuple[float, float]], chunk: int) -> None:
    """β_j = Σ_{j≤k<j+w} α_k exp(u_j) / Σ_{k-w<l≤k} exp(u_l), as it is written."""
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
    assert spread(heads, scores, chunk) == pytest.approx(expected)


def test_chunks_are_the_moving_sums_of_the_paper() -> None:
    """β = exp(u) · forward sum of (α / backward sum of exp(u)), sums over w positions."""
    heads, scores = torch.rand(7, dtype=torch.float64) / 7, torch.randn(7, dtype=torch.float64)
    backward = sum(shift(scores.exp(), i) for i in range(3))
    expected = scores.exp() * sum(shift(heads / backward, -i) for i in range(3))
    assert spread(heads.tolist(), scores.tolist(), 3) == pytest.approx(expected.tolist())


def test_a_chunk_is_normalised_over_real_positions_with_any_normaliser() -> None:
    heads, scores = torch.tensor([[[0.0, 0.0, 0.0, 1.0]]]), torch.tensor([[[0.0, 0.0, 7.0, LN3]]])
    mask = torch.tensor([[[True, True, False, True]]])
    assert chunkwise_weights(heads, scores, mask, 3, Softmax(0.5))[0, 0].tolist() == pytest.approx(
        [0, 1 / 10, 0, 9 / 10]
    )


def test_a_chunk_of_one_is_monotonic_attention() -> None:
    attention, memory = make(MoChA, chunk=1, noise=0.0)
    queries = torch.randn(B, 3, H, dtype=torch.float64)
    for mode in (True, False):
        weights, states = run(attention.train(mode), memory, queries)
        assert torch.equal(weights, states)


def test_the_state_is_the_head_and_not_the_weights() -> None:
    attention, memory = make(MoChA, chunk=3, noise=0.0)
    plain = Monotonic(query_size=H, memory_size=D, size=A, noise=0.0).double()
    own = {k: v for k, v in attention.state_dict().items() if not k.startswith("inner")}
    plain.load_state_dict(own)
    queries = torch.randn(B, 3, H, dtype=torch.float64)
    weights, states = run(attention, memory, queries)
    torch.testing.assert_close(states, run(plain, memory, queries)[0])
    assert not torch.allclose(weights, states)


def test_chunk_scores_are_additive_and_of_their_own() -> None:
    attention, memory = make(MoChA, chunk=2, noise=0.0)
    assert isinstance(attention, MoChA)
    attention.eval()
    with torch.no_grad():
        attention.gain.zero_()
        attention.offset.fill_(-1.0)
    query = torch.randn(B, 1, H, dtype=torch.float64)
    keys = attention.project(memory)
    head = torch.zeros(B, 1, S, dtype=torch.float64)
    head[..., 1] = 1
    scores = attention.inner.score(query, attention.inner.project(memory), None)
    expected = torch.zeros(B, 1, S, dtype=torch.float64)
    expected[..., :2] = scores[..., :2].softmax(dim=-1)
    with torch.no_grad():
        attention.offset.fill_(1.0)  # stop where the head stands
    torch.testing.assert_close(attention(query, memory, keys, head)[1], expected)


def test_a_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"attention\.chunk must be 1 or more, not 0"):
        MoChA(query_size=H, memory_size=D, size=A, chunk=0)
