import math

import pytest
import torch
from torch import Tensor

from attnlab.nn.attention import Dot, Forgetting, StickBreaking
from attnlab.types import Memory
from networks import attend, randomise

B, Q, S, H = 2, 3, 5, 7
LENGTHS = [5, 3]


@pytest.fixture
def memory() -> Memory:
    return Memory(torch.randn(B, S, H), torch.arange(S) < torch.tensor(LENGTHS)[:, None])


def score(query: Tensor, state: Tensor) -> float:
    return float(query @ state)


@torch.no_grad()
def test_forgetting_equals_a_loop(memory: Memory) -> None:
    attention, queries = Forgetting(query_size=H, memory_size=H, score=Dot), torch.randn(B, Q, H)
    randomise(attention)
    _, weights = attend(attention, queries, memory)
    for row, length in enumerate(LENGTHS):
        states = memory.states[row, :length]
        gates = [float(torch.sigmoid(attention.gate(state))) for state in states]
        for q, query in enumerate(queries[row]):
            kept = [math.prod(gates[j + 1 :]) * math.exp(score(query, states[j])) for j in range(length)]
            expected = [value / sum(kept) for value in kept] + [0.0] * (S - length)
            assert weights[row, q].tolist() == pytest.approx(expected, abs=1e-5)


def test_stick_breaking_equals_a_loop(memory: Memory) -> None:
    attention, queries = StickBreaking(query_size=H, memory_size=H, score=Dot), torch.randn(B, Q, H)
    _, weights = attend(attention, queries, memory)
    for row, length in enumerate(LENGTHS):
        for q, query in enumerate(queries[row]):
            left, expected = 1.0, [0.0] * S
            for j in reversed(range(length)):
                share = 1 / (1 + math.exp(-score(query, memory.states[row, j])))
                expected[j], left = share * left, left * (1 - share)
            assert weights[row, q].tolist() == pytest.approx(expected, abs=1e-5)


def test_stick_breaking_attends_to_the_last_position_with_a_high_score() -> None:
    attention = StickBreaking(query_size=1, memory_size=1, score=Dot)
    memory = Memory(torch.tensor([[[90.0], [50.0], [-50.0]]]), torch.ones(1, 3, dtype=torch.bool))
    _, weights = attend(attention, torch.ones(1, 1, 1), memory)
    assert weights[0, 0].tolist() == pytest.approx([0.0, 1.0, 0.0])
