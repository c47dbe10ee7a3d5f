import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attnlab.nn.attention import Dot, Shift
from attnlab.types import Memory
from networks import random_memory, randomise, walk

SATURATED = 50.0  # logit of a softmax or a sigmoid that gives 1 to within e^-50
FIRST, LAST, CONTENT = range(3)


def make_shift(
    *,
    start: int = CONTENT,
    gate: float = 0.0,
    moves: list[float],
    sharpness: float = -SATURATED,
) -> Shift:
    """Return a mechanism whose gates depend on its biases only; content addressing is uniform."""
    reach = len(moves) // 2
    attention = Shift(query_size=1, memory_size=1, reach=reach)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        attention.start[start] = SATURATED
        attention.gate.bias.fill_(gate)
        attention.moves.bias.copy_(torch.tensor(moves))
        attention.sharpness.bias.fill_(sharpness)
    return attention


def focus(attention: Shift, length: int, steps: int) -> list[int]:
    """Return the position with all the weight at each step."""
    weights = walk(attention, torch.randn(1, steps, 1), random_memory([length], 1, padding=2))[1][0]
    assert weights.max(dim=-1).values.tolist() == pytest.approx([1] * steps)
    return weights.argmax(dim=-1).tolist()


@given(length=st.integers(1, 60))
@settings(max_examples=20)
def test_shifts_from_an_end_reverse_and_copy_any_length(length: int) -> None:
    reverse = make_shift(start=LAST, gate=-SATURATED, moves=[SATURATED, 0, 0])
    assert focus(reverse, length, length + 3) == [*reversed(range(length)), 0, 0, 0]
    copy = make_shift(start=FIRST, gate=-SATURATED, moves=[0, 0, SATURATED])
    assert focus(copy, length, length + 3) == [*range(length), *[length - 1] * 3]


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
        gamma = attention.least_sharpness + nn.functional.softplus(attention.sharpness(s)).item()
        total = sum(w**gamma for w in mixed)
        rows.append([w**gamma / total for w in mixed])
    return torch.tensor(rows, dtype=states.dtype)


@pytest.mark.parametrize("reach", [0, 1, 2, 5])
@pytest.mark.parametrize(("length", "least"), [(1, 1.0), (2, 2.0), (4, 1.0), (4, 1.5)])
@torch.no_grad()
def test_weights_match_the_equations(reach: int, length: int, least: float) -> None:
    attention = Shift(query_size=3, memory_size=2, reach=reach, least_sharpness=least).double()
    randomise(attention)
    memory, queries = random_memory([length], 2, padding=2), torch.randn(1, 5, 3, dtype=torch.float64)
    memory = memory._replace(states=memory.states.double())
    weights = walk(attention, queries, memory)[1][0]
    torch.testing.assert_close(
        weights[:, :length], reference_weights(attention, queries[0], memory.states[0, :length])
    )
    assert not weights[:, length:].any()


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
    walk(attention, torch.ones(1, 4, 1), random_memory([5], 1))[1][0, -1, 3].backward()
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
