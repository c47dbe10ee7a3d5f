"""Differential attention: the difference of two attention distributions."""

from collections.abc import Callable
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, ScoreWrapper, Sizes
from attnlab.settings import Fraction
from attnlab.types import Memory


class Differential(ScoreWrapper):
    """Differential attention (Ye et al., 2025).

    ::

        α = normaliser(e) - λ normaliser(e')                  e, e': scores of two inner mechanisms
        c = (1 - λ₀) RMSNorm(Σ_j α_j h_j)
        λ = exp(u₁ᵀ v₁) - exp(u₂ᵀ v₂) + λ₀                    u, v: trained vectors

    Ye et al. 2025 (arXiv 2410.05258), section 2.1, where this is a head of multi-head attention:
    `attention=multihead attention@attention.score=differential`. The difference cancels weight that both
    distributions give to irrelevant positions. A weight may be negative, and is so in the context; the
    returned weights are max(α, 0), for inspection and copying.

    Args:
        initial: λ₀, the initial share of the second distribution that is subtracted, in [0, 1). The paper
            uses 0.8 - 0.6 exp(-0.3 l) in layer l, from 0; 0.8 is as good.
    """

    def __init__(
        self, *, score: Callable[..., Attention], initial: Fraction = 0.8, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(score=score, **sizes)
        self.other = score(query_size=self.query_size, memory_size=self.memory_size)
        self.initial = initial
        self.vectors = nn.Parameter(0.1 * torch.randn(4, self.memory_size))  # u₁, v₁, u₂, v₂

    def project(self, memory: Memory) -> Tensor:
        """Return the keys of both inner mechanisms, concatenated: [B, S, 2 K]."""
        return torch.cat([self.inner.project(memory), self.other.project(memory)], dim=-1)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return self.inner.score(query, keys.chunk(2, dim=-1)[0], None)

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Any]:
        mask = memory.mask[:, None]  # [B, 1, S]
        first = self.normaliser(self.score(query, keys, None), mask)  # [B, Q, S]
        second = self.normaliser(self.other.score(query, keys.chunk(2, dim=-1)[1], None), mask)  # [B, Q, S]
        u1, v1, u2, v2 = self.vectors.to(first.dtype)
        with torch.autocast(first.device.type, enabled=False):  # a difference of numbers close to 1
            subtracted = torch.exp(u1 @ v1) - torch.exp(u2 @ v2) + self.initial
        return first - subtracted * second, state

    def context(self, weights: Tensor, memory: Memory) -> Tensor:
        context = super().context(weights, memory)  # [B, Q, D]
        return (1 - self.initial) * F.rms_norm(context, context.shape[-1:], eps=1e-5)

    def forward(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        context, weights, state = super().forward(query, memory, keys, state)
        return context, weights.clamp(0, 1), state
