"""Multiplicative attention: scores that are products of a query and a memory state."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser, widened
from attnlab.nn.fused.linear import Linear
from attnlab.types import Memory


class Dot(Attention):
    """e_j = sᵀ h_j: Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, "dot".

    Costs 2·S·D operations, S numbers, no parameters. The query must be as wide as the memory.

    Raises:
        ValueError: if H ≠ D.
    """

    def __init__(self, *, query_size: int, memory_size: int, normaliser: Normaliser = SOFTMAX) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        if query_size != memory_size:
            raise ValueError(
                f"dot attention compares a query of size {query_size} with a memory of size {memory_size}; "
                "make them equal (decoder.size = encoder.size x directions) or use attention=general"
            )

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """[B, Q, S]."""
        return torch.bmm(query, keys.transpose(1, 2))  # [B, Q, S]


class ScaledDot(Dot):
    """e_j = sᵀ h_j / √D: Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1.

    Costs 2·S·D operations, S numbers, no parameters; the scaled keys cost S·D operations and numbers once a
    sentence. The query must be as wide as the memory.
    """

    def project(self, memory: Memory) -> Tensor:
        """h_j / √D: [B, S, D]; scaled once a sentence and not once a query."""
        return memory.states / math.sqrt(self.memory_size)


class General(Attention):
    """e_j = sᵀ W h_j: Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, "general".

    Costs 2·S·H operations and S numbers; the keys W h_j cost 2·S·D·H and S·H once a sentence.
    """

    def __init__(self, *, query_size: int, memory_size: int, normaliser: Normaliser = SOFTMAX) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        self.key = Linear(memory_size, query_size, bias=False)

    def project(self, memory: Memory) -> Tensor:
        """W h_j: [B, S, H]."""
        return self.key(memory.states)  # type: ignore[no-any-return]

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """[B, Q, S]."""
        return torch.bmm(query, keys.transpose(1, 2))  # [B, Q, S]


class Cosine(Attention):
    """e_j = β cos(W s, h_j), β = softplus(wᵀ s + b): Graves, Wayne & Danihelka 2014 (arXiv 1410.5401).

    The content addressing of section 3.3.1, where the controller emits a key W s and its strength β > 0. How
    long a memory state is says nothing, and no score is beyond ± β. Vectors shorter than 0.001 are divided by
    0.001 and not by their length, which keeps gradients finite.

    Costs 2·H·(D + 1) + 3·D + S·(2·D + 1) operations and 2·D + 2·S numbers; the directions of the h_j cost
    3·S·D and S·D once a sentence.

    Args:
        query_size: H.
        memory_size: D.
        strength: β at first, but for what the query adds; cosines alone are too alike to choose by.
        normaliser: from scores to weights.

    Raises:
        ValueError: if the strength is not above 0.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        strength: float = 10.0,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        if strength <= 0:
            raise ValueError(f"attention.strength must be above 0, not {strength}")
        self.query = Linear(query_size, memory_size, bias=False)
        self.strength = Linear(query_size, 1)
        nn.init.constant_(self.strength.bias, strength + math.log(-math.expm1(-strength)))  # softplus⁻¹

    def project(self, memory: Memory) -> Tensor:
        """h_j / |h_j|: [B, S, D]."""
        return _direction(memory.states)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """[B, Q, S]."""
        cosines = torch.bmm(_direction(self.query(query)), keys.transpose(1, 2))  # [B, Q, S]
        return F.softplus(self.strength(query)) * cosines


def _direction(vectors: Tensor) -> Tensor:
    """Vectors [..., D] of length 1; their squares are summed in fp32 at least."""
    return F.normalize(widened(vectors), dim=-1, eps=1e-3).to(vectors.dtype)
