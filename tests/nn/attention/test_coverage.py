import pytest
import torch
from torch import nn

from attnlab.nn.attention import CoverageSee, CoverageTu
from attnlab.types import Memory
from networks import randomise, walk


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_fertility_near_zero_stays_finite(dtype: torch.dtype) -> None:
    attention = CoverageTu(query_size=1, memory_size=1, size=1, max_fertility=2.0).to(dtype)
    nn.init.ones_(attention.fertility.weight)
    states = torch.tensor([[[-1e4], [1e4]]], dtype=dtype, requires_grad=True)
    memory = Memory(states, torch.ones(1, 2, dtype=torch.bool))
    contexts, weights = walk(attention, torch.ones(1, 100, 1, dtype=dtype), memory)
    assert weights.isfinite().all()
    (contexts.float() * 1e-4).square().sum().backward()
    assert states.grad.isfinite().all()


@pytest.mark.parametrize("mechanism", ["see", "tu"])
def test_weights_match_the_equations(mechanism: str) -> None:
    sizes = {"query_size": 3, "memory_size": 2, "size": 5}
    attention = CoverageSee(**sizes) if mechanism == "see" else CoverageTu(**sizes, max_fertility=1.5)
    randomise(attention)
    states, queries = torch.randn(1, 4, 2), torch.randn(1, 6, 3)
    W, U, v = attention.query.weight, attention.key.weight, attention.energy.weight[0]
    V = attention.past.weight[:, 0]
    b = attention.past.bias if attention.past.bias is not None else 0.0
    coverage, expected = torch.zeros(4), []
    for s in queries[0]:
        scores = [v @ torch.tanh(W @ s + U @ h + V * c + b) for h, c in zip(states[0], coverage, strict=True)]
        alpha = torch.stack(scores).softmax(dim=0)
        expected.append(alpha)
        if isinstance(attention, CoverageTu):
            coverage = coverage + alpha / (1.5 * torch.sigmoid(states[0] @ attention.fertility.weight[0]))
        else:
            coverage = coverage + alpha
    memory = Memory(states, torch.ones(1, 4, dtype=torch.bool))
    torch.testing.assert_close(walk(attention, queries, memory)[1][0], torch.stack(expected))
