"""Sigmoid attention: each position is weighted independently of the others."""

from typing import Any

import torch
from torch import Tensor

from attnlab.nn.attention.base import ScoreWrapper
from attnlab.nn.attention.numerics import at_least_float32
from attnlab.types import Memory


class Sigmoid(ScoreWrapper):
    """Sigmoid attention (Ramapuram et al., 2024).

    ::

        α_j = σ(e_j - ln S)

    e are the scores of the inner mechanism, S the number of real positions. Ramapuram et al. 2024 (arXiv
    2409.04431), section 3. Positions do not compete for weight: the weights sum to at most S, and to about 1
    for scores of 0, which is the purpose of ln S. All of them may be 0.

    Args:
        normaliser: not used.
    """

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        mask = memory.mask[:, None]  # [B, 1, S]
        length = mask.sum(dim=-1, keepdim=True).clamp(min=1)  # [B, 1, 1]
        return torch.sigmoid(at_least_float32(self.score(query, keys, state)) - length.log()) * mask, state
