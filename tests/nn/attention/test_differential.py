import pytest
import torch
from torch import nn

from attnlab.nn.attention import Differential, Dot, General
from attnlab.types import Memory
from networks import attend, randomise

B, Q, S, H, D = 2, 3, 5, 6, 4


def make_memory() -> Memory:
    return Memory(torch.randn(B, S, D), torch.arange(S) < torch.tensor([[S], [2]]))


def test_equal_scores_leave_the_share_that_is_not_subtracted() -> None:
    """e = e' = ln 3, 0 and λ = λ₀ = 1/2: α = 3/8, 1/8, c = ½ RMSNorm(9/8, 4/8)."""
    attention = Differential(query_size=2, memory_size=2, score=Dot, initial=0.5)
    nn.init.zeros_(attention.vectors)
    states = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]])
    memory = Memory(states, torch.ones(1, 2, dtype=torch.bool))
    query = torch.tensor([[[torch.tensor(3.0).log() / 3, 0.0]]])
    context, weights = attend(attention, query, memory)
    assert weights[0, 0].tolist() == pytest.approx([3 / 8, 1 / 8])
    sums = torch.tensor([9 / 8, 4 / 8])
    expected = sums / (sums.square().mean() + 1e-5).sqrt() / 2
    torch.testing.assert_close(context[0, 0], expected)


@torch.no_grad()
def test_equals_the_equations_of_the_paper() -> None:
    """Equations 1 to 3, with bilinear scores in place of W_q and W_k."""
    attention = Differential(query_size=H, memory_size=D, score=General)
    randomise(attention)
    query, memory = torch.randn(B, Q, H), make_memory()
    context, weights = attend(attention, query, memory)
    u1, v1, u2, v2 = attention.vectors
    subtracted = (u1 * v1).sum().exp() - (u2 * v2).sum().exp() + 0.8
    for row, length in enumerate((S, 2)):
        h = memory.states[row, :length]
        scores = [query[row] @ (h @ part.key.weight.T).T for part in (attention.inner, attention.other)]
        first, second = (score.softmax(dim=-1) for score in scores)
        alpha = first - subtracted * second
        assert (alpha < 0).any()
        torch.testing.assert_close(weights[row, :, :length], alpha.clamp(min=0), rtol=0, atol=1e-5)
        expected = 0.2 * nn.functional.rms_norm(alpha @ h, (D,), eps=1e-5)
        torch.testing.assert_close(context[row], expected, rtol=0, atol=1e-5)
