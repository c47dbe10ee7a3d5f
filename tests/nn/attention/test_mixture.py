import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from torch import Tensor, nn

from attnlab.nn.attention import Mixture
from attnlab.nn.attention.mixture import MINIMUM_WIDTH
from attnlab.types import Memory
from networks import random_memory, walk


def softplus_inverse(value: float) -> float:
    return math.log(math.expm1(value))


def mixture(*shapes: tuple[float, float, float]) -> Mixture:
    """Return components of (share, step, width) that do not depend on the query."""
    attention = Mixture(query_size=1, memory_size=1, size=1, components=len(shapes))
    nn.init.zeros_(attention.shape.weight)
    shares, steps, widths = zip(*shapes, strict=True)
    offsets = [
        *(math.log(share) for share in shares),
        *(softplus_inverse(step) for step in steps),
        *(softplus_inverse(width - MINIMUM_WIDTH) for width in widths),
    ]
    attention.shape.bias.data = torch.tensor(offsets)
    return attention


def weights_of(attention: Mixture, length: int, steps: int) -> Tensor:
    """Return weights [T, S] for random queries and states, followed by two positions of padding."""
    return walk(attention, torch.randn(1, steps, 1), random_memory([length], 1, padding=2))[1][0]


@given(
    shapes=st.lists(st.tuples(*[st.floats(0.1, 3)] * 3), min_size=1, max_size=3),
    length=st.integers(1, 6),
    steps=st.integers(1, 5),
)
@settings(max_examples=30)
@torch.no_grad()
def test_weights_equal_a_mixture_of_normal_distributions(
    shapes: list[tuple[float, float, float]], length: int, steps: int
) -> None:
    weights = weights_of(mixture(*shapes), length, steps)
    total = sum(share for share, _, _ in shapes)
    for i, row in enumerate(weights.tolist(), start=1):
        expected = [
            sum(
                share / total * (norm.cdf(j + 0.5, i * step, width) - norm.cdf(j - 0.5, i * step, width))
                for share, step, width in shapes
            )
            for j in range(1, length + 1)
        ]
        assert row == pytest.approx([*expected, 0, 0], abs=1e-5)


@given(length=st.integers(1, 60))
@settings(max_examples=20)
@torch.no_grad()
def test_narrow_component_with_unit_step_copies_any_length(length: int) -> None:
    weights = weights_of(mixture((1, 1, 0.011)), length, length + 2)
    torch.testing.assert_close(weights[:length, :length], torch.eye(length))
    assert not weights[length:].any()  # the component is beyond the end


def test_steps_depend_on_the_query() -> None:
    """Large queries saturate tanh at ± 1, so the component moves by softplus(5 ± 5)."""
    attention = mixture((1, 1, 0.011))
    with torch.no_grad():
        attention.hidden.weight.fill_(1.0)
        attention.hidden.bias.zero_()
        attention.shape.weight.copy_(torch.tensor([[0.0], [5.0], [0.0]]))
        attention.shape.bias[1] = 5.0
    weights = walk(attention, torch.tensor([[[99.0], [-99.0], [99.0]]]), random_memory([25], 1))[1][0]
    assert weights.argmax(dim=-1).tolist() == [9, 10, 20]  # positions 10, 10.69, 20.69, counted from 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("large", [1e4, -1e4])
@pytest.mark.parametrize("part", range(3), ids=["shares", "steps", "widths"])
def test_extreme_components_stay_finite(part: int, large: float, dtype: torch.dtype) -> None:
    attention = Mixture(query_size=2, memory_size=2, size=3, components=2)
    with torch.no_grad():
        attention.shape.bias[2 * part] = large
    attention, queries = attention.to(dtype), torch.randn(2, 12, 2).to(dtype).requires_grad_()
    memory = Memory(torch.randn(2, 5, 2).to(dtype), torch.arange(5) < torch.tensor([[5], [1]]))
    weights = walk(attention, queries, memory)[1]
    assert ((weights >= 0) & (weights.sum(dim=-1, keepdim=True) <= 1 + 1e-6)).all()
    weights.square().sum().backward()
    for leaf in (queries, *attention.parameters()):
        assert leaf.grad.isfinite().all()


def test_initial_step_is_one_position() -> None:
    attention = Mixture(query_size=3, memory_size=2, size=4)
    nn.init.zeros_(attention.shape.weight)
    memory = random_memory([4], 2)
    _, _, means = attention(torch.randn(1, 1, 3), memory, attention.project(memory), attention.begin(memory))
    assert means.flatten().tolist() == pytest.approx([1.0] * 5)


@torch.no_grad()
def test_means_do_not_drift_under_autocast() -> None:
    attention = Mixture(query_size=3, memory_size=2, size=4, width=0.1)
    memory, queries = random_memory([90, 90], 2), torch.randn(2, 90, 3)
    _, exact = walk(attention, queries, memory)
    with torch.autocast("cpu", torch.bfloat16):
        _, mixed = walk(attention, queries, memory)
    torch.testing.assert_close(mixed, exact, rtol=0, atol=1e-4)
