"""Stick-breaking attention: each position takes a share of what the positions after it have left."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.attention.base import ScoreWrapper
from attnlab.nn.attention.forgetting import sum_after
from attnlab.nn.attention.numerics import at_least_float32
from attnlab.types import Memory


class StickBreaking(ScoreWrapper):
    """Stick-breaking attention (Tan et al., 2024).

    ::

        α_j = β_j Π_{l>j} (1 - β_l)          β = σ(e)

    e are the scores of the inner mechanism. Tan et al. 2024 (arXiv 2410.17980), for self-attention; computed
    as the exponential of a sum of logarithms. The last position with a high score gets the weight, however
    high those before it are, so that no position encoding is needed to find the latest one. The weights sum
    to less than 1: what no position takes is left over.

    Args:
        normaliser: not used.
    """

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        mask = memory.mask[:, None]  # [B, 1, S]
        scores = at_least_float32(self.score(query, keys, state))  # [B, Q, S]
        left = (-F.softplus(scores)).masked_fill(~mask, 0.0)  # [B, Q, S]: log (1 - β)
        return (F.logsigmoid(scores) + sum_after(left, dim=-1)).exp() * mask, state
