from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnlab.nn.attention import (
    Additive,
    Attention,
    Concat,
    Cosine,
    Dot,
    Final,
    General,
    Mean,
    NoAttention,
    ScaledDot,
)
from attnlab.nn.attention.normalisers import SOFTMAX
from attnlab.types import Memory
from networks import ATTENTIONS, make_attention, randomise, same_sizes, walk

B, Q, S, H, D = 2, 3, 5, 7, 11
LENGTHS = [5, 2]
WEIGHTLESS = {"NoAttention", "Final"}
MAPPED = {"MultiHead"}  # its context is of mapped memory states; test_multihead.py says which
SUBDISTRIBUTION = {
    "LocalP",  # a bell multiplies its weights after they are normalised
    "Mixture",  # a bell may reach beyond the ends
    "MoChA",  # the head may have run past the end
    "Monotonic",
}
DRAWING = {"Hard"}  # what it draws in training is tested in test_hard.py; here it chooses
variants = pytest.mark.parametrize("name", ATTENTIONS)


def make(name: str, dtype: torch.dtype = torch.float32) -> tuple[Attention, Tensor, Memory]:
    """A variant with large weights, queries [B, Q, H], and a memory with rubbish at its padding."""
    query_size = D if same_sizes(name) else H
    attention = make_attention(name, query_size, D)
    randomise(attention)
    attention.train(name not in DRAWING)
    return attention.to(dtype), torch.randn(B, Q, query_size, dtype=dtype), make_memory(LENGTHS, dtype)


def make_memory(lengths: list[int], dtype: torch.dtype = torch.float32) -> Memory:
    mask = torch.arange(S) < torch.tensor(lengths)[:, None]
    return Memory(torch.randn(len(lengths), S, D, dtype=dtype), mask)


def attend(attention: Attention, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Context and weights of the first target position."""
    context, weights, _ = attention(query, memory, attention.project(memory), attention.begin(memory))
    return context, weights


def leaf(memory: Memory) -> Memory:
    return memory._replace(states=memory.states.clone().requires_grad_())


# ------------------------------------------------------------------------------ what all variants promise


@variants
def test_weights_are_a_distribution_over_real_positions(name: str) -> None:
    attention, query, memory = make(name)
    context, weights = attend(attention, query[:, 0], memory)
    assert context.shape == (B, attention.context_size)
    assert weights.shape == (B, S)
    assert (weights >= 0).all()
    assert not weights[~memory.mask].any()  # exactly 0
    if name in SUBDISTRIBUTION:
        assert ((weights.sum(dim=-1) > 0) & (weights.sum(dim=-1) < 1)).all()
        return
    total = 0.0 if name in WEIGHTLESS else 1.0
    torch.testing.assert_close(weights.sum(dim=-1), torch.full((B,), total))


@variants
def test_context_is_the_weighted_sum(name: str) -> None:
    attention, query, memory = make(name)
    context, weights = attend(attention, query[:, 0], memory)
    if name not in WEIGHTLESS | MAPPED:
        torch.testing.assert_close(context, torch.einsum("bs,bsd->bd", weights, memory.states))


@variants
@given(extra=st.integers(0, 4), row=st.integers(0, B - 1))
@settings(max_examples=10)
def test_padding_and_batch_mates_change_nothing(name: str, extra: int, row: int) -> None:
    attention, query, memory = make(name)
    together = walk(attention, query, memory)
    length = LENGTHS[row]
    states = torch.cat([memory.states[row, :length], torch.randn(extra, D)])[None]
    mask = (torch.arange(length + extra) < length)[None]
    context, weights = walk(attention, query[row : row + 1], Memory(states, mask))
    torch.testing.assert_close(context[0], together[0][row], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(weights[0, :, :length], together[1][row, :, :length], rtol=0, atol=1e-6)
    assert not weights[0, :, length:].any()


@variants
def test_what_padding_holds_is_never_seen(name: str) -> None:
    attention, query, memory = make(name)
    other = memory._replace(states=torch.where(memory.mask[..., None], memory.states, 1e6))
    for one, two in zip(attend(attention, query, memory), attend(attention, query, other), strict=True):
        assert torch.equal(one, two)


@variants
def test_a_query_without_the_q_axis_is_one_query(name: str) -> None:
    attention, query, memory = make(name)
    with_axis = attend(attention, query[:, :1], memory)
    without = attend(attention, query[:, 0], memory)
    for one, two in zip(with_axis, without, strict=True):
        assert torch.equal(one[:, 0], two)


@variants
def test_without_a_state_it_begins(name: str) -> None:
    attention, query, memory = make(name)
    keys = attention.project(memory)
    begun = attention(query[:, 0], memory, keys, attention.begin(memory))
    for one, two in zip(attention(query[:, 0], memory, keys)[:2], begun[:2], strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", [name for name, variant in ATTENTIONS.items() if not variant.stateful])
def test_many_queries_at_once_are_many_calls(name: str) -> None:
    attention, query, memory = make(name)
    at_once = attend(attention, query, memory)
    assert at_once[0].shape == (B, Q, attention.context_size)
    assert at_once[1].shape == (B, Q, S)
    for i in range(Q):
        for many, one in zip(at_once, attend(attention, query[:, i], memory), strict=True):
            torch.testing.assert_close(many[:, i], one, rtol=0, atol=1e-6)


@variants
def test_the_module_keeps_nothing(name: str) -> None:
    attention, query, memory = make(name)
    before = {key: id(value) for key, value in vars(attention).items()}
    first = attend(attention, query, memory)
    attend(attention, query.flip(1), make_memory([3, 4]))
    assert {key: id(value) for key, value in vars(attention).items()} == before
    for one, two in zip(first, attend(attention, query, memory), strict=True):
        assert torch.equal(one, two)


def test_state_is_handed_on_by_the_caller() -> None:
    attention, query, memory = make("Coverage")
    keys, state = attention.project(memory), attention.begin(memory)
    _, first, state = attention(query, memory, keys, state)
    _, second, state = attention(query, memory, keys, state)
    torch.testing.assert_close(state, first + second)
    scores = attention.score(query, keys, first)
    torch.testing.assert_close(second, SOFTMAX(scores, memory.mask[:, None]))


@variants
def test_gradients(name: str) -> None:
    attention, query, memory = make(name, torch.float64)

    def context(query: Tensor, states: Tensor) -> Tensor:
        # a sum with the states, so that a variant without a context has a gradient to check, too
        return walk(attention, query, memory._replace(states=states))[0].sum(-1) + states.sum() + query.sum()

    assert torch.autograd.gradcheck(context, (query.requires_grad_(), memory.states.requires_grad_()))


@variants
def test_every_parameter_learns(name: str) -> None:
    attention, query, memory = make(name)
    parameters = dict(attention.named_parameters())
    if not parameters:
        return
    attention.train()
    contexts, _ = walk(attention, query, memory)  # what is learned of state shows from the second step on
    contexts.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in parameters.values())


@variants
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_row_masked_whole(name: str, dtype: torch.dtype) -> None:
    attention, query, memory = make(name, dtype)
    memory = leaf(memory._replace(mask=torch.tensor([[True] * S, [False] * S])))
    query.requires_grad_()
    context, weights = attend(attention, query, memory)
    assert not weights[1].any()
    assert context.dtype == dtype
    assert context.isfinite().all()
    if name not in WEIGHTLESS:
        assert not context[1].any()
    (context.float().square().sum() + (query + memory.states.sum()).float().sum()).backward()
    leaves = [query, memory.states, *attention.parameters()]
    assert all(tensor.grad.isfinite().all() for tensor in leaves if tensor.grad is not None)


@variants
def test_a_memory_of_one_position(name: str) -> None:
    attention, query, memory = make(name)
    single = Memory(memory.states[:, :1], memory.mask[:, :1])
    context, weights = attend(attention, query, single)
    if name in SUBDISTRIBUTION:
        torch.testing.assert_close(context, weights * single.states)
        return
    if name not in WEIGHTLESS:
        assert (weights == 1).all()
    if attention.context_size and name not in MAPPED:
        torch.testing.assert_close(context, single.states.expand(-1, Q, -1))


LOUDNESS = {
    "Cosine": "strength.bias",
    "Coverage": "key.weight",
    "General": "key.weight",
    "Location": "positions.weight",
    "MoChA": "gain",
    "Monotonic": "gain",
}
"""The parameter that scores grow with, where it is not `energy.weight`."""


def largest_scores(attention: Attention, query: Tensor, memory: Memory) -> dict[Attention, float]:
    """The largest |score| in a walk, of the variant and of whatever variant scores inside it."""
    found: dict[Attention, float] = {}

    def listen(part: Attention) -> None:
        score = part.score

        def listening(*arguments: Any) -> Tensor:
            scores = score(*arguments)
            found[part] = max(found.get(part, 0.0), scores.abs().max().item())
            return scores

        part.score = listening  # type: ignore[method-assign]

    parts = [part for part in attention.modules() if isinstance(part, Attention)]
    for part in parts:
        listen(part)
    walk(attention, query, memory)
    for part in parts:
        del part.score
    return found


@pytest.mark.parametrize("name", sorted(set(ATTENTIONS) - WEIGHTLESS - {"Mean", "Mixture"}))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_scores_of_ten_thousand_stay_finite(name: str, dtype: torch.dtype, training: bool) -> None:
    attention, query, memory = make(name)
    memory = memory._replace(mask=torch.arange(S) < torch.tensor([[S], [1]]))  # one row of one token
    attention.train(training)
    with torch.no_grad():
        for _ in range(4):  # where there is an offset, too, it takes more than one
            for part, peak in largest_scores(attention, query, memory).items():
                if not dict(part.named_parameters()):  # a product of query and state
                    query = query * (1e4 / peak)
                elif (loudness := LOUDNESS.get(type(part).__name__, "energy.weight")) in part.state_dict():
                    part.get_parameter(loudness).abs_().mul_(1e4 / peak)  # a strength below 0 is none
        for peak in largest_scores(attention, query, memory).values():
            assert peak == pytest.approx(1e4, rel=1e-3)
    attention, query = attention.to(dtype), query.to(dtype).requires_grad_()
    memory = leaf(memory._replace(states=memory.states.to(dtype)))
    contexts, weights = walk(attention, query, memory)
    assert contexts.isfinite().all()
    assert not weights[~memory.mask[:, None].expand_as(weights)].any()
    if name not in SUBDISTRIBUTION:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, Q), rtol=0, atol=1e-6)
    else:
        assert ((weights >= 0) & (weights.sum(dim=-1, keepdim=True) <= 1 + 1e-6)).all()
    (contexts.float() * torch.randn_like(contexts)).sum().backward()
    leaves = {"query": query, "states": memory.states, **dict(attention.named_parameters())}
    wrong = [
        key for key, value in leaves.items() if value.grad is not None and not value.grad.isfinite().all()
    ]
    assert not wrong


# ------------------------------------------------------------------------------------ values by hand
# A score of ln 3 against one of 0 gives odds of 3 : 1, that is, weights of 3/4 and 1/4.


def by_hand(
    attention: Attention, query: list[float], states: list[list[float]]
) -> tuple[list[float], list[float]]:
    """Context and weights for one query and one memory that ends in a padded position of large numbers."""
    rows = torch.tensor([*states, [99.0] * len(states[0])])
    mask = torch.tensor([[True] * len(states) + [False]])
    context, weights = attend(attention, torch.tensor([query]), Memory(rows[None], mask))
    return context[0].tolist(), weights[0].tolist()


def test_additive_by_hand() -> None:
    """With v = 2 ln 3, and tanh(½ ln 3) = ½: the scores of h = 0 and h = -½ ln 3 are ln 3 and 0."""
    attention = Additive(query_size=1, memory_size=1, size=1)
    torch.nn.init.ones_(attention.query.weight)
    torch.nn.init.ones_(attention.key.weight)
    torch.nn.init.constant_(attention.energy.weight, 2 * math.log(3))
    half = math.log(3) / 2
    context, weights = by_hand(attention, [half], [[0.0], [-half]])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([-half / 4])


def test_additive_offsets_by_hand() -> None:
    """As above, with s and h of 0 and all of ½ ln 3 in the offsets: W s + b, U h + b'."""
    attention = Additive(query_size=1, memory_size=1, size=1, bias=True)
    half = math.log(3) / 2
    for weight, value in [
        (attention.query.weight, 1),
        (attention.key.weight, 1),
        (attention.energy.weight, 4 * half),
    ]:
        torch.nn.init.constant_(weight, value)
    torch.nn.init.constant_(attention.query.bias, 3 * half)
    torch.nn.init.constant_(attention.key.bias, -2 * half)
    _, weights = by_hand(attention, [0.0], [[0.0], [-half]])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])


def test_concat_is_additive_with_its_matrices_side_by_side() -> None:
    additive = Additive(query_size=H, memory_size=D, size=13, bias=True)
    concat = Concat(query_size=H, memory_size=D, size=13, bias=True)
    randomise(additive)
    with torch.no_grad():
        concat.pair.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], dim=1))
        concat.pair.bias.copy_(additive.query.bias + additive.key.bias)
        concat.energy.weight.copy_(additive.energy.weight)
    query, memory = torch.randn(B, Q, H), make_memory(LENGTHS)
    for one, two in zip(attend(concat, query, memory), attend(additive, query, memory), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


def test_concat_from_its_equation() -> None:
    """vᵀ tanh(W [s; h_j]), with each pair put together."""
    attention, query, memory = make("Concat")
    assert isinstance(attention, Concat)
    for row in range(B):
        pairs = torch.cat([query[row].repeat_interleave(S, dim=0), memory.states[row].repeat(Q, 1)], dim=1)
        scores = attention.energy(torch.tanh(attention.pair(pairs))).view(Q, S)
        expected = scores.masked_fill(~memory.mask[row], -torch.inf).softmax(dim=-1)
        torch.testing.assert_close(attend(attention, query, memory)[1][row], expected, rtol=0, atol=1e-5)


def test_cosine_by_hand() -> None:
    """Strength ln 9, and cosines of 1 and ½ whatever the lengths: scores ½ ln 9 = ln 3 apart."""
    attention = Cosine(query_size=2, memory_size=2, strength=math.log(9))
    torch.nn.init.eye_(attention.query.weight)
    torch.nn.init.zeros_(attention.strength.weight)
    context, weights = by_hand(attention, [5.0, 0.0], [[0.1, 0.0], [1.0, math.sqrt(3)]])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([0.325, math.sqrt(3) / 4])  # of the states as they are


def test_cosine_strength_is_asked_of_the_query() -> None:
    """As above, with a strength of softplus(4 s_1 - 20 + ln 8) = ln 9 at s_1 = 5."""
    attention = Cosine(query_size=2, memory_size=2)
    torch.nn.init.eye_(attention.query.weight)
    attention.strength.weight.data = torch.tensor([[4.0, 0.0]])
    torch.nn.init.constant_(attention.strength.bias, math.log(8) - 20)
    _, weights = by_hand(attention, [5.0, 0.0], [[0.1, 0.0], [1.0, math.sqrt(3)]])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_cosine_of_nothing_has_finite_gradients(dtype: torch.dtype) -> None:
    """A decoder that starts from zeros asks with a query of zeros."""
    attention = Cosine(query_size=H, memory_size=D).to(dtype)
    query, memory = torch.zeros(B, Q, H, dtype=dtype, requires_grad=True), leaf(make_memory(LENGTHS, dtype))
    context, _ = attend(attention, query, memory._replace(states=memory.states * memory.mask[..., None]))
    context.float().square().sum().backward()
    leaves = [query, memory.states, *attention.parameters()]
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in leaves)


def test_cosine_refuses_a_strength_of_0() -> None:
    with pytest.raises(ValueError, match=r"attention\.strength must be above 0, not 0"):
        Cosine(query_size=H, memory_size=D, strength=0)


def test_dot_by_hand() -> None:
    """s = (ln 3, 5): the scores of (1, 0) and (0, 0) are ln 3 and 0."""
    context, weights = by_hand(Dot(query_size=2, memory_size=2), [math.log(3), 5.0], [[1.0, 0.0], [0.0, 0.0]])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([3 / 4, 0])


def test_scaled_dot_by_hand() -> None:
    """D = 4, so a product of 2 ln 3 is a score of ln 3."""
    attention = ScaledDot(query_size=4, memory_size=4)
    context, weights = by_hand(attention, [2 * math.log(3), 0.0, 0.0, 0.0], [[1.0, 0.0, 0.0, 8.0], [0.0] * 4])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([3 / 4, 0, 0, 6])  # of the states, not of the scaled keys


def test_general_by_hand() -> None:
    """W = (1, 2) and s = ln 2: the scores of (1, 0) and (0, 1) are ln 2 and ln 4, odds of 1 : 2."""
    attention = General(query_size=1, memory_size=2)
    attention.key.weight.data = torch.tensor([[1.0, 2.0]])
    context, weights = by_hand(attention, [math.log(2)], [[1.0, 0.0], [0.0, 1.0]])
    assert weights == pytest.approx([1 / 3, 2 / 3, 0])
    assert context == pytest.approx([1 / 3, 2 / 3])


def test_mean_by_hand() -> None:
    context, weights = by_hand(Mean(query_size=1, memory_size=2), [7.0], [[1.0, 2.0], [3.0, 6.0]])
    assert weights == [1 / 2, 1 / 2, 0]
    assert context == [2, 4]


def test_final_by_hand() -> None:
    context, weights = by_hand(Final(query_size=1, memory_size=2), [7.0], [[1.0, 2.0], [3.0, 6.0]])
    assert weights == [0, 0, 0]
    assert context == [3, 6]  # the last real position


def test_final_takes_the_top_layers_final_state() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # [B = 1, L = 2, D = 2]
    memory = Memory(torch.zeros(1, S, 2), torch.ones(1, S, dtype=torch.bool), hidden)
    context, _ = attend(Final(query_size=1, memory_size=2), torch.zeros(1, Q, 1), memory)
    assert context.tolist() == [[[3, 4]] * Q]


def test_no_attention_has_a_context_of_width_0() -> None:
    attention = NoAttention(query_size=H, memory_size=D)
    assert attention.context_size == 0
    assert attend(attention, torch.zeros(B, Q, H), make_memory(LENGTHS))[0].shape == (B, Q, 0)


def test_scaled_dot_is_torch_s_own() -> None:
    attention, query, memory = make("ScaledDot")
    expected = F.scaled_dot_product_attention(query, memory.states, memory.states, memory.mask[:, None])
    torch.testing.assert_close(attend(attention, query, memory)[0], expected, rtol=0, atol=1e-5)


def test_general_is_torch_s_bilinear() -> None:
    attention, query, memory = make("General")
    assert isinstance(attention, General)
    for row in range(B):
        pairs = query[row].repeat_interleave(S, dim=0), memory.states[row].repeat(Q, 1)
        scores = F.bilinear(*pairs, attention.key.weight[None]).view(Q, S)
        expected = scores.masked_fill(~memory.mask[row], -torch.inf).softmax(dim=-1)
        torch.testing.assert_close(attend(attention, query, memory)[1][row], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("variant", [Dot, ScaledDot])
def test_dot_refuses_unequal_sizes(variant: type[Dot]) -> None:
    with pytest.raises(ValueError, match=r"size 7 .* size 11: .* attention=general"):
        variant(query_size=7, memory_size=11)


# ---------------------------------------------------------------------------------------- normalisation


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_huge_scores_stay_finite(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1e4, -1e4, 1e4, 0.0], [-1e4, -1e4, 1e4, 1e4]], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    weights = SOFTMAX(scores, mask)
    assert weights.tolist() == [[0.5, 0, 0.5, 0], [0.5, 0.5, 0, 0]]
    weights.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("rubbish", [torch.inf, -torch.inf, torch.nan])
def test_scores_at_padding_are_never_read(rubbish: float) -> None:
    scores = torch.tensor([math.log(3), 0.0, rubbish])
    weights = SOFTMAX(scores, torch.tensor([True, True, False]))
    assert weights.tolist() == pytest.approx([3 / 4, 1 / 4, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_normalised_in_single(dtype: torch.dtype) -> None:
    weights = SOFTMAX(torch.zeros(1000, dtype=dtype), torch.ones(1000, dtype=torch.bool))
    assert weights.dtype == torch.float32
    assert weights.sum().item() == pytest.approx(1, abs=1e-5)
