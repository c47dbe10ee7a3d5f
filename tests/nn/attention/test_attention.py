import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.fast import accelerate
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
from attnlab.nn.attention.additive import Energy
from attnlab.nn.attention.normalisers import SOFTMAX
from attnlab.types import Memory
from networks import ATTENTIONS, attend, make_attention, random_memory, randomise, same_sizes, walk

B, Q, S, H, D = 2, 3, 5, 7, 11
LENGTHS = [5, 2]
WEIGHTLESS = {"NoAttention", "Final"}
PROJECTED = {
    "Differential",  # its context is a normalised sum with signed weights, see test_differential.py
    "MultiHead",  # its context is a sum of projected memory states, see test_multihead.py
}
"""Mechanisms whose context is not the weighted sum of the memory."""
SUBDISTRIBUTION = {
    "LocalP",  # a Gaussian multiplies the normalised weights
    "Mixture",  # components may extend beyond the ends of the sentence
    "MoChA",  # the head may have run past the end
    "Monotonic",
    "MILk",
    "Sink",  # the sink gets the rest
}
"""Mechanisms whose weights may sum to less than 1."""
INDEPENDENT = {"Differential", "Sigmoid"}
"""Mechanisms whose weights may sum to any number."""
SAMPLING = {"Hard"}  # tested in evaluation mode here, and in training mode in test_hard.py
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Fast(str):
    """Name of a mechanism that is accelerated."""

    __slots__ = ()


def label(name: str) -> str:
    return f"fast {name}" if isinstance(name, Fast) else name


FUSED = [
    Fast(name)
    for name in ATTENTIONS
    if any(isinstance(part, Energy | Concat) for part in make_attention(name, 4, 4).modules())
]
"""Mechanisms of which more than the linear layers is accelerated; see also tests/fast."""

all_mechanisms = pytest.mark.parametrize("name", ATTENTIONS)
plain_and_fast = pytest.mark.parametrize("name", [*ATTENTIONS, *FUSED], ids=label)


@pytest.fixture(autouse=True)
def _fast_products_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.fast.linear.MIN_ROWS", 1)


def make(name: str, dtype: torch.dtype = torch.float32) -> tuple[Attention, Tensor, Memory]:
    """Return a mechanism with large parameters, queries [B, Q, H] and a memory with random padding."""
    query_size = D if same_sizes(name) else H
    attention = make_attention(name, query_size, D)
    randomise(attention)
    attention.train(name not in SAMPLING)
    if isinstance(name, Fast):
        accelerate(attention)
    memory = random_memory(LENGTHS, D)
    memory = memory._replace(states=memory.states.to(dtype))
    return attention.to(dtype), torch.randn(B, Q, query_size, dtype=dtype), memory


def with_gradient(memory: Memory) -> Memory:
    return memory._replace(states=memory.states.clone().requires_grad_())


# ---------------------------------------------------------------------- properties of all mechanisms


@all_mechanisms
def test_weights_are_a_distribution_over_real_positions(name: str) -> None:
    attention, query, memory = make(name)
    context, weights = attend(attention, query, memory)
    assert context.shape == (B, Q, attention.context_size)
    assert weights.shape == (B, Q, S)
    assert (weights >= 0).all()
    assert not weights.transpose(1, 2)[~memory.mask].any()  # exactly 0
    if name in INDEPENDENT:
        return
    if name in SUBDISTRIBUTION:
        assert ((weights.sum(dim=-1) > 0) & (weights.sum(dim=-1) < 1)).all()
        return
    total = 0.0 if name in WEIGHTLESS else 1.0
    torch.testing.assert_close(weights.sum(dim=-1), torch.full((B, Q), total))


@all_mechanisms
def test_context_is_the_weighted_sum_of_the_memory(name: str) -> None:
    attention, query, memory = make(name)
    context, weights = attend(attention, query, memory)
    if name not in WEIGHTLESS | PROJECTED:
        torch.testing.assert_close(context, weights @ memory.states)


@plain_and_fast
def test_padding_and_batch_do_not_change_results(name: str) -> None:
    attention, query, memory = make(name)
    together = walk(attention, query, memory)
    for row, extra in product(range(B), (0, 1, 4)):
        length = LENGTHS[row]
        states = torch.cat([memory.states[row, :length], torch.randn(extra, D)])[None]
        mask = (torch.arange(length + extra) < length)[None]
        context, weights = walk(attention, query[row : row + 1], Memory(states, mask))
        torch.testing.assert_close(context[0], together[0][row], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(weights[0, :, :length], together[1][row, :, :length], rtol=0, atol=1e-6)
        assert not weights[0, :, length:].any()


@all_mechanisms
def test_values_at_padding_have_no_influence(name: str) -> None:
    attention, query, memory = make(name)
    other = memory._replace(states=torch.where(memory.mask[..., None], memory.states, 1e6))
    for one, two in zip(attend(attention, query, memory), attend(attention, query, other), strict=True):
        assert torch.equal(one, two)


@all_mechanisms
def test_module_stores_no_state(name: str) -> None:
    attention, query, memory = make(name)
    before = {key: id(value) for key, value in vars(attention).items()}
    first = attend(attention, query, memory)
    attend(attention, query.flip(1), random_memory([3, 4], D, padding=1))
    assert {key: id(value) for key, value in vars(attention).items()} == before
    for one, two in zip(first, attend(attention, query, memory), strict=True):
        assert torch.equal(one, two)


def test_state_is_returned_to_the_caller() -> None:
    attention, query, memory = make("Coverage")
    keys, state = attention.project(memory), attention.begin(memory)
    _, first, state = attention(query, memory, keys, state)
    _, second, state = attention(query, memory, keys, state)
    torch.testing.assert_close(state, first + second)
    scores = attention.score(query, keys, first)
    torch.testing.assert_close(second, SOFTMAX(scores, memory.mask[:, None]))


@pytest.mark.slow
@plain_and_fast
def test_gradients_pass_gradcheck(name: str) -> None:
    attention, query, memory = make(name, torch.float64)

    def context(query: Tensor, states: Tensor) -> Tensor:
        # Adding states and query gives mechanisms without a context a gradient to check.
        return walk(attention, query, memory._replace(states=states))[0].sum(-1) + states.sum() + query.sum()

    assert torch.autograd.gradcheck(
        context, (query.requires_grad_(), memory.states.requires_grad_()), fast_mode=True
    )


@plain_and_fast
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fully_masked_row_gets_zero_weights_and_finite_gradients(name: str, dtype: torch.dtype) -> None:
    attention, query, memory = make(name, dtype)
    memory = with_gradient(memory._replace(mask=torch.tensor([[True] * S, [False] * S])))
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


SCALE_PARAMETERS = {
    "Cosine": "strength.bias",
    "Location": "positions.weight",
    "MILk": "gain",
    "MoChA": "gain",
    "Monotonic": "gain",
}
"""The parameter to which scores are proportional, where it is neither `energy.weight` nor `key.weight`."""


def scale_parameter(attention: Attention) -> str | None:
    """Return the parameter to which a mechanism's own scores are proportional."""
    name = type(attention).__name__
    names = [SCALE_PARAMETERS[name]] if name in SCALE_PARAMETERS else ["energy.weight", "key.weight"]
    return next((parameter for parameter in names if parameter in attention.state_dict()), None)


def largest_scores(attention: Attention, query: Tensor, memory: Memory) -> dict[Attention, float]:
    """Return the largest |score| over all steps, of the mechanism and of its inner mechanisms."""
    largest: dict[Attention, float] = {}

    def record(part: Attention) -> None:
        score = part.score

        def recorded(*arguments: Any) -> Tensor:
            scores = score(*arguments)
            largest[part] = max(largest.get(part, 0.0), scores.abs().max().item())
            return scores

        part.score = recorded

    parts = [part for part in attention.modules() if isinstance(part, Attention)]
    for part in parts:
        record(part)
    walk(attention, query, memory)
    for part in parts:
        del part.score
    return largest


@pytest.mark.parametrize(
    "name",
    [name for name in (*ATTENTIONS, *FUSED) if name not in WEIGHTLESS | {"Mean", "Mixture"}],
    ids=label,
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_scores_of_ten_thousand_stay_finite(name: str, dtype: torch.dtype, training: bool) -> None:
    attention, query, memory = make(name)
    memory = memory._replace(mask=torch.arange(S) < torch.tensor([[S], [1]]))  # one row has a single token
    attention.train(training)
    with torch.no_grad():
        for _ in range(4):  # scores with an offset need several iterations
            for part, peak in largest_scores(attention, query, memory).items():
                if not dict(part.named_parameters()):  # a product of query and memory
                    query = query * (1e4 / peak)
                elif parameter := scale_parameter(part):
                    part.get_parameter(parameter).abs_().mul_(1e4 / peak)  # Cosine needs a strength above 0
        for peak in largest_scores(attention, query, memory).values():
            assert peak == pytest.approx(1e4, rel=1e-3)
    attention, query = attention.to(dtype), query.to(dtype).requires_grad_()
    memory = with_gradient(memory._replace(states=memory.states.to(dtype)))
    contexts, weights = walk(attention, query, memory)
    assert contexts.isfinite().all()
    assert not weights[~memory.mask[:, None].expand_as(weights)].any()
    if name in INDEPENDENT:
        assert (weights >= 0).all()
    elif name not in SUBDISTRIBUTION:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, Q), rtol=0, atol=1e-6)
    else:
        assert ((weights >= 0) & (weights.sum(dim=-1, keepdim=True) <= 1 + 1e-6)).all()
    (contexts.float() * torch.randn_like(contexts)).sum().backward()
    leaves = {"query": query, "states": memory.states, **dict(attention.named_parameters())}
    gradients = {key: value.grad for key, value in leaves.items() if value.grad is not None}
    assert not [key for key, gradient in gradients.items() if not gradient.isfinite().all()]


# ------------------------------------------------------------------------------------ known values
# Scores of ln 3 and 0 give weights of 3/4 and 1/4.


def attend_once(
    attention: Attention, query: list[float], states: list[list[float]]
) -> tuple[list[float], list[float]]:
    """Return context and weights for one query; the memory is followed by padding with large values."""
    rows = torch.tensor([*states, [99.0] * len(states[0])])
    mask = torch.tensor([[True] * len(states) + [False]])
    context, weights = attend(attention, torch.tensor([[query]]), Memory(rows[None], mask))
    return context[0, 0].tolist(), weights[0, 0].tolist()


def test_additive_known_values() -> None:
    """v = 2 ln 3 and tanh(½ ln 3) = ½, so h = 0 and h = -½ ln 3 have scores ln 3 and 0."""
    attention = Additive(query_size=1, memory_size=1, size=1)
    torch.nn.init.ones_(attention.query.weight)
    torch.nn.init.ones_(attention.key.weight)
    torch.nn.init.constant_(attention.energy.weight, 2 * math.log(3))
    half = math.log(3) / 2
    context, weights = attend_once(attention, [half], [[0.0], [-half]])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([-half / 4])


def test_concat_equals_additive_with_concatenated_matrices() -> None:
    additive = Additive(query_size=H, memory_size=D, size=13, bias=True)
    concat = Concat(query_size=H, memory_size=D, size=13, bias=True)
    randomise(additive)
    with torch.no_grad():
        concat.pair.weight.copy_(torch.cat([additive.query.weight, additive.key.weight], dim=1))
        concat.pair.bias.copy_(additive.query.bias + additive.key.bias)
        concat.energy.weight.copy_(additive.energy.weight)
    query, memory = torch.randn(B, Q, H), random_memory(LENGTHS, D)
    for one, two in zip(attend(concat, query, memory), attend(additive, query, memory), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)


def test_cosine_known_values() -> None:
    """Strength ln 9 and cosines of 1 and ½ for any norms: scores differ by ½ ln 9 = ln 3."""
    attention = Cosine(query_size=2, memory_size=2, strength=math.log(9))
    torch.nn.init.eye_(attention.query.weight)
    torch.nn.init.zeros_(attention.strength.weight)
    context, weights = attend_once(attention, [5.0, 0.0], [[0.1, 0.0], [1.0, math.sqrt(3)]])
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([0.325, math.sqrt(3) / 4])  # a sum of the states, not of the unit vectors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_cosine_of_zero_vectors_has_finite_gradients(dtype: torch.dtype) -> None:
    """A decoder with a zero initial state has a query of zeros."""
    attention = Cosine(query_size=H, memory_size=D).to(dtype)
    query, memory = torch.zeros(B, Q, H, dtype=dtype, requires_grad=True), random_memory(LENGTHS, D)
    states = memory.states.to(dtype).requires_grad_()
    context, _ = attend(attention, query, memory._replace(states=states * memory.mask[..., None]))
    context.float().square().sum().backward()
    leaves = [query, states, *attention.parameters()]
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in leaves)


def test_dot_known_values() -> None:
    """With s = (ln 3, 5), the scores of (1, 0) and (0, 0) are ln 3 and 0."""
    context, weights = attend_once(
        Dot(query_size=2, memory_size=2), [math.log(3), 5.0], [[1.0, 0.0], [0.0, 0.0]]
    )
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([3 / 4, 0])


def test_scaled_dot_known_values() -> None:
    """D = 4, so a dot product of 2 ln 3 gives a score of ln 3."""
    attention = ScaledDot(query_size=4, memory_size=4)
    context, weights = attend_once(
        attention, [2 * math.log(3), 0.0, 0.0, 0.0], [[1.0, 0.0, 0.0, 8.0], [0.0] * 4]
    )
    assert weights == pytest.approx([3 / 4, 1 / 4, 0])
    assert context == pytest.approx([3 / 4, 0, 0, 6])  # a sum of the states, not of the scaled keys


def test_general_known_values() -> None:
    """With W = (1, 2) and s = ln 2, the scores of (1, 0) and (0, 1) are ln 2 and ln 4."""
    attention = General(query_size=1, memory_size=2)
    attention.key.weight.data = torch.tensor([[1.0, 2.0]])
    context, weights = attend_once(attention, [math.log(2)], [[1.0, 0.0], [0.0, 1.0]])
    assert weights == pytest.approx([1 / 3, 2 / 3, 0])
    assert context == pytest.approx([1 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("mechanism", "expected_weights", "expected_context"),
    [(Mean, [1 / 2, 1 / 2, 0], [2, 4]), (Final, [0, 0, 0], [3, 6])],  # Final: the last real position
)
def test_baselines_known_values(
    mechanism: type[Attention], expected_weights: list[float], expected_context: list[float]
) -> None:
    attention = mechanism(query_size=1, memory_size=2)
    context, weights = attend_once(attention, [7.0], [[1.0, 2.0], [3.0, 6.0]])
    assert weights == expected_weights
    assert context == expected_context


def test_final_uses_the_top_layer_of_the_encoder() -> None:
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])  # [B = 1, L = 2, D = 2]
    memory = Memory(torch.zeros(1, S, 2), torch.ones(1, S, dtype=torch.bool), hidden)
    context, _ = attend(Final(query_size=1, memory_size=2), torch.zeros(1, Q, 1), memory)
    assert context.tolist() == [[[3, 4]] * Q]


def test_no_attention_has_zero_width_context() -> None:
    attention = NoAttention(query_size=H, memory_size=D)
    assert attention.context_size == 0
    assert attend(attention, torch.zeros(B, Q, H), random_memory(LENGTHS, D))[0].shape == (B, Q, 0)


@pytest.mark.parametrize("mechanism", [Dot, ScaledDot])
def test_dot_products_need_equal_sizes(mechanism: type[Dot]) -> None:
    with pytest.raises(ValueError, match=r"size 7 .* size 11: .* attention=general"):
        mechanism(query_size=7, memory_size=11)
