import math

import pytest
import torch
from torch import Tensor

from attnlab.nn.attention import Location, LocationSensitive
from attnlab.types import Memory
from networks import random_memory, randomise, walk


@pytest.mark.parametrize(
    ("length", "padding", "expected"),
    [
        (3, 0, [3 / 6, 1 / 6, 2 / 6]),
        (2, 0, [3 / 4, 1 / 4]),
        (2, 2, [3 / 4, 1 / 4, 0, 0]),
        (5, 1, [3 / 6, 1 / 6, 2 / 6, 0, 0, 0]),  # positions beyond `max_length` have no weight
    ],
)
def test_location_known_values(length: int, padding: int, expected: list[float]) -> None:
    """With W = (ln 3, 0, ln 2) and s = 1, the weights are proportional to 3 : 1 : 2."""
    attention = Location(query_size=1, memory_size=1, max_length=3)
    attention.positions.weight.data = torch.tensor([[math.log(3)], [0.0], [math.log(2)]])
    _, weights = walk(attention, torch.ones(1, 1, 1), random_memory([length], 1, padding=padding))
    assert weights.flatten().tolist() == pytest.approx(expected, rel=1e-6, abs=0)


def test_location_ignores_the_memory() -> None:
    attention = Location(query_size=3, memory_size=2, max_length=5)
    queries = torch.randn(1, 4, 3)
    one, two = (walk(attention, queries, random_memory([4], 2, padding=1))[1] for _ in range(2))
    assert torch.equal(one, two)


def test_location_sensitive_matches_its_equations() -> None:
    attention = LocationSensitive(query_size=3, memory_size=2, size=5, channels=2, kernel=3)
    randomise(attention)
    memory, queries = random_memory([6], 2), torch.randn(1, 4, 3)
    W, V = attention.query.weight, attention.key.weight
    U, b, v = attention.past.weight, attention.past.bias, attention.energy.weight[0]
    F = attention.convolution.weight[:, 0]  # [C, K]
    alpha, expected = [0.0] * 6, []
    for s in queries[0]:
        alpha_padded = torch.tensor([0.0, *alpha, 0.0])
        scores: list[Tensor] = []
        for j, h in enumerate(memory.states[0]):
            f = F @ alpha_padded[j : j + 3]
            scores.append(v @ torch.tanh(W @ s + V @ h + U @ f + b))
        alpha = torch.stack(scores).softmax(dim=0).tolist()
        expected.append(alpha)
    torch.testing.assert_close(walk(attention, queries, memory)[1][0], torch.tensor(expected))


@torch.no_grad()
def test_padding_has_no_influence_through_a_wide_convolution() -> None:
    attention = LocationSensitive(query_size=3, memory_size=2, size=5, channels=3, kernel=11)
    randomise(attention)
    memory, queries = random_memory([4], 2, padding=5), torch.randn(1, 5, 3)
    alone = Memory(memory.states[:, :4], memory.mask[:, :4])
    padded_weights = walk(attention, queries, memory)[1]
    torch.testing.assert_close(padded_weights[..., :4], walk(attention, queries, alone)[1])
    assert not padded_weights[..., 4:].any()
