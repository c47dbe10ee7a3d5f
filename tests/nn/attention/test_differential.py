import pytest
import torch
from torch import nn

from attnlab.nn.attention import Differential, General
from networks import attend, random_memory, randomise

B, Q, S, H, D = 2, 3, 5, 6, 4


@pytest.mark.parametrize("initial", [0.8, 0.5])
@torch.no_grad()
def test_equals_the_equations_of_the_paper(initial: float) -> None:
    """Equations 1 to 3, with bilinear scores in place of W_q and W_k."""
    attention = Differential(query_size=H, memory_size=D, score=General, initial=initial)
    randomise(attention)
    query, memory = torch.randn(B, Q, H), random_memory([S, 2], D)
    context, weights = attend(attention, query, memory)
    u1, v1, u2, v2 = attention.vectors
    subtracted = (u1 * v1).sum().exp() - (u2 * v2).sum().exp() + initial
    for row, length in enumerate((S, 2)):
        h = memory.states[row, :length]
        scores = [query[row] @ (h @ part.key.weight.T).T for part in (attention.inner, attention.other)]
        first, second = (score.softmax(dim=-1) for score in scores)
        alpha = first - subtracted * second
        assert (alpha < 0).any()
        torch.testing.assert_close(weights[row, :, :length], alpha.clamp(min=0), rtol=0, atol=1e-5)
        expected = (1 - initial) * nn.functional.rms_norm(alpha @ h, (D,), eps=1e-5)
        torch.testing.assert_close(context[row], expected, rtol=0, atol=1e-5)
