"""Forgetting attention: a forget gate at each source position lowers the scores of those before it."""

from collections.abc import Callable
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, ScoreWrapper, Sizes
from attnlab.nn.attention.numerics import at_least_float32
from attnlab.types import Memory


class Forgetting(ScoreWrapper):
    """Forgetting attention (Lin et al., 2025).

    ::

        α = softmax(e + D)          D_j = Σ_{l>j} log f_l,  f_l = σ(w h_l + b)

    e are the scores of the inner mechanism. Lin et al. 2025 (arXiv 2503.02130), for self-attention in a
    decoder-only model. There, the gates of target positions change the scores of all source positions
    equally, which softmax cancels; the gates of the source remain. The last position is forgotten least. b
    is initially 2, f about 0.88.
    """

    def __init__(self, *, score: Callable[..., Attention], **sizes: Unpack[Sizes]) -> None:
        super().__init__(score=score, **sizes)
        self.gate = nn.Linear(self.memory_size, 1)
        nn.init.constant_(self.gate.bias, 2.0)

    def project(self, memory: Memory) -> Tensor:
        """Return the keys of the inner mechanism, and D, [B, S, A + 1]."""
        gates = F.logsigmoid(at_least_float32(self.gate(memory.states)))  # [B, S, 1]
        gates = gates.masked_fill(~memory.mask[..., None], 0.0)
        after = sum_after(gates, dim=1)  # [B, S, 1]
        inner = super().project(memory)
        return torch.cat([inner, after.to(inner.dtype)], dim=-1)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return super().score(query, keys[..., :-1], state) + keys[:, None, :, -1]  # [B, Q, S]


def sum_after(values: Tensor, dim: int) -> Tensor:
    """Return Σ_{l>j} v_l at each position j of a dimension, in the shape of the values, such as [B, S]."""
    return values.flip(dim).cumsum(dim).flip(dim) - values
