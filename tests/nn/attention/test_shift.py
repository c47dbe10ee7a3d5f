import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attnlab.nn.attention import Dot, Shift
from attnlab.nn.attention.shift import ShiftState, shift_weights
from attnlab.types import Memory
from networks import randomise, walk

LN3 = math.log(3)
SATURATED = 50.0  # logit of a softmax or a sigmoid that gives 1 to within e^-50
FIRST, LAST, CONTENT = range(3)


def make_shift(
    *,
    start: int = CONTENT,
    gate: float = 0.0,
    moves: list[float],
    sharpness: float = -SATURATED,
    least_sharpness: float = 1.0,
) -> Shift:
    """Return a mechanism whose gates depend on its biases only; content addressing is uniform."""
    reach = len(moves) // 2
    attention = Shift(query_size=1, memory_size=1, reach=reach, least_sharpness=least_sharpness)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        attention.start[start] = SATURATED
        attention.gate.bias.fill_(gate)
        attention.moves.bias.copy_(torch.tensor(moves))
        attention.sharpness.bias.fill_(sharpness)
    return attention


def memory_of(length: int, padding: int = 2, size: int = 1) -> Memory:
    width = length + padding
    return Memory(torch.randn(1, width, size), (torch.arange(width) < length)[None])


def focus(attention: Shift, length: int, steps: int) -> list[int]:
    """Return the position with all the weight at each step."""
    weights = walk(attention, torch.randn(1, steps, 1), memory_of(length))[1][0]
    assert weights.max(dim=-1).values.tolist() == pytest.approx([1] * steps)
    return weights.argmax(dim=-1).tolist()


# ---------------------------------------------------------------------------------------------- shifts


@given(length=st.integers(1, 60))
@settings(max_examples=20)
def test_shift_by_minus_one_from_the_end_reverses_any_length(length: int) -> None:
    attention = make_shift(start=LAST, gate=-SATURATED, moves=[SATURATED, 0, 0])
    assert focus(attention, length, length + 3) == [*reversed(range(length)), 0, 0, 0]


@given(length=st.integers(1, 60))
@settings(max_examples=20)
def test_shift_by_one_from_the_start_copies_any_length(length: int) -> None:
    attention = make_shift(start=FIRST, gate=-SATURATED, moves=[0, 0, SATURATED])
    assert focus(attention, length, length + 3) == [*range(length), *[length - 1] * 3]


# ---------------------------------------------------------------------------------------- known values


def after(attention: Shift, before: list[float], states: list[list[float]]) -> list[float]:
    """Return the weights of a step after weights `before`, for a query of 1; the last position is padding."""
    memory = Memory(torch.tensor([states]), (torch.arange(len(states)) < len(states) - 1)[None])
    state = ShiftState(torch.tensor([[before]]), torch.ones(1, 1, 1, dtype=torch.bool))
    _, weights, new = attention(torch.ones(1, 1, 1), memory, attention.project(memory), state)
    assert torch.equal(new.weights, weights)
    assert new.started.all()
    return weights.flatten().tolist()


def test_shift_weights_known_values() -> None:
    """1/2 moves left and 1/4 right; weight shifted beyond an end stays at that end."""
    moved = shift_weights(
        torch.tensor([[[0.25, 0.75, 0.0]]]),
        torch.tensor([[[0.5, 0.25, 0.25]]]),
        torch.tensor([[True, True, False]]),
    )
    left = 0.25 * (0.5 + 0.25) + 0.75 * 0.5
    assert moved.flatten().tolist() == pytest.approx([left, 1 - left, 0])


def reference_weights(attention: Shift, queries: Tensor, states: Tensor) -> Tensor:
    """Return the weights [T, S] of one sentence without padding, computed element by element."""
    S, reach = len(states), attention.reach
    rows: list[list[float]] = []
    for t, s in enumerate(queries):
        content = (states @ attention.inner.key.weight.T @ s).softmax(dim=0).tolist()
        if t == 0:
            first, last, rest = attention.start.softmax(dim=0).tolist()
            mixed = [first * (j == 0) + last * (j == S - 1) + rest * content[j] for j in range(S)]
        else:
            g = torch.sigmoid(attention.gate(s)).item()
            gated = [g * c + (1 - g) * w for c, w in zip(content, rows[-1], strict=True)]
            mixed = [0.0] * S
            for j, k in ((j, k) for j in range(S) for k in range(-reach, reach + 1)):
                share = attention.moves(s).softmax(dim=0)[k + reach].item()
                mixed[min(max(j + k, 0), S - 1)] += gated[j] * share
        gamma = 1 + nn.functional.softplus(attention.sharpness(s)).item()
        total = sum(w**gamma for w in mixed)
        rows.append([w**gamma / total for w in mixed])
    return torch.tensor(rows, dtype=states.dtype)


@pytest.mark.parametrize("reach", [0, 1, 2, 5])
@pytest.mark.parametrize("length", [1, 2, 4])
@torch.no_grad()
def test_weights_match_the_equations(reach: int, length: int) -> None:
    attention = Shift(query_size=3, memory_size=2, reach=reach).double()
    randomise(attention)
    memory, queries = memory_of(length, size=2), torch.randn(1, 5, 3, dtype=torch.float64)
    memory = memory._replace(states=memory.states.double())
    weights = walk(attention, queries, memory)[1][0]
    torch.testing.assert_close(
        weights[:, :length], reference_weights(attention, queries[0], memory.states[0, :length])
    )
    assert not weights[:, length:].any()


def test_least_sharpness_known_values() -> None:
    """γ = 2 + 0: (3/4, 1/4) becomes (9/10, 1/10)."""
    attention = make_shift(gate=-SATURATED, moves=[0, SATURATED, 0], least_sharpness=2.0)
    assert after(attention, [0.75, 0.25, 0.0], [[0.0]] * 3) == pytest.approx([9 / 10, 1 / 10, 0])


# ------------------------------------------------------------------------------------ general properties


@torch.no_grad()
def test_gaps_in_the_mask_get_zero_weight() -> None:
    attention = Shift(query_size=3, memory_size=2, reach=2)
    randomise(attention)
    memory = Memory(torch.randn(1, 5, 2), torch.tensor([[False, True, False, True, False]]))
    weights = walk(attention, torch.randn(1, 6, 3), memory)[1][0]
    assert not weights[:, ~memory.mask[0]].any()
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("large", [1e4, -1e4])
@pytest.mark.parametrize("part", ["gate", "moves", "sharpness", "start", "content"])
def test_extreme_parameters_stay_finite(part: str, large: float, dtype: torch.dtype) -> None:
    attention = Shift(query_size=2, memory_size=2, score=Dot).to(dtype)
    scale = large / 3 if part == "content" else 1.0  # products must also fit in half precision
    with torch.no_grad():
        if part == "start":
            attention.start[1] = large
        elif part != "content":
            getattr(attention, part).bias[-1] = large
    states = (torch.randn(2, 5, 2) * scale).to(dtype).requires_grad_()
    memory = Memory(states, torch.tensor([[True] * 5, [True, True, False, False, False]]))
    queries = torch.randn(2, 12, 2).to(dtype).requires_grad_()
    weights = walk(attention, queries, memory)[1]
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 12))
    weights.square().sum().backward()
    for leaf in (queries, states, *attention.parameters()):
        assert leaf.grad.isfinite().all()


def test_positions_without_weight_get_gradients() -> None:
    """With all weight on one position and strong sharpening, the gradient of the shift is not 0."""
    attention = make_shift(start=FIRST, gate=-SATURATED, moves=[0, 3.0, 0], sharpness=3.0)
    walk(attention, torch.ones(1, 4, 1), memory_of(5))[1][0, -1, 3].backward()
    assert attention.moves.bias.grad[2] > 0
    assert attention.sharpness.bias.grad.isfinite().all()


def test_gate_bias_shifts_only_the_initial_bias_of_the_gate() -> None:
    networks = []
    for gate_bias in (0.0, -1.5):
        torch.manual_seed(0)
        networks.append(Shift(query_size=3, memory_size=2, gate_bias=gate_bias).state_dict())
    first, second = networks
    assert {name: (second[name] - first[name]).mean().item() for name in first} == pytest.approx(
        {**dict.fromkeys(first, 0.0), "gate.bias": -1.5}
    )
