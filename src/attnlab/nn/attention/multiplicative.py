"""Multiplicative attention: scores that are products of a query and a memory state."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser
from attnlab.types import Memory


class Dot(Attention):
    """e_j = sᵀ h_j: Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, "dot".

    Per query 2·S·D operations, no parameters. The query must be as wide as the memory.

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

    Per query 2·S·D operations, no parameters. The query must be as wide as the memory.
    """

    def project(self, memory: Memory) -> Tensor:
        """h_j / √D: [B, S, D]; scaled once a sentence and not once a query."""
        return memory.states / math.sqrt(self.memory_size)


class General(Attention):
    """e_j = sᵀ W h_j: Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, "general".

    Per query 2·S·H operations; the keys W h_j cost 2·S·D·H once a sentence.
    """

    def __init__(self, *, query_size: int, memory_size: int, normaliser: Normaliser = SOFTMAX) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        self.key = nn.Linear(memory_size, query_size, bias=False)

    def project(self, memory: Memory) -> Tensor:
        """W h_j: [B, S, H]."""
        return self.key(memory.states)  # type: ignore[no-any-return]

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """[B, Q, S]."""
        return torch.bmm(query, keys.transpose(1, 2))  # [B, Q, S]
