"""Forward attention: monotonic alignment paths weighted by the scores of another mechanism."""

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.attention.base import ScoreWrapper
from attnlab.nn.attention.numerics import SMALLEST_WEIGHT, at_least_float32
from attnlab.types import Memory


class Forward(ScoreWrapper):
    """Forward attention (Zhang et al., 2018).

    ::

        α_ij ∝ (α_{i-1,j} + α_{i-1,j-1}) y_ij        y = softmax(e), α_0 = (1, 0, …)

    Zhang, Ling & Dai 2018 (arXiv 1807.06736), algorithm 1; e are the scores of the inner mechanism. Only
    alignment paths count that start at the first position and stay or advance by one position per step.
    Unlike `Monotonic`, training and decoding use the same weights, and the weights always sum to 1.

    y may come from another normaliser. With a sparse one, gradients can occasionally be very large. Padding
    must come last: paths do not cross a gap in the mask.

    State: α_{i-1}, [B, Q, S].

    Args:
        normaliser: computes y from the scores of the reachable positions.
    """

    stateful = True

    def begin(self, memory: Memory) -> Tensor:
        start = at_least_float32(memory.states.new_zeros(memory.mask.shape))[:, None]  # [B, 1, S]
        start[..., 0] = 1
        return start

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        arriving = state + F.pad(state, (1, -1))  # [B, Q, S]
        reachable = memory.mask[:, None] & (arriving > SMALLEST_WEIGHT)
        paths = arriving * self.normaliser(self.score(query, keys, state), reachable)  # [B, Q, S]
        # y sums to 1 over the reachable positions, so the total is 0 only in a fully masked row.
        total = paths.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(paths.dtype).tiny)
        return paths / total, paths / total
