"""Multiplicative attention: scores are inner products of query and memory states."""

import math
from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, Sizes
from attnlab.nn.attention.numerics import at_least_float32, inverse_softplus
from attnlab.settings import Positive
from attnlab.types import Memory


class Dot(Attention):
    """Dot-product attention (Luong et al., 2015).

    ::

        e_j = sᵀ h_j

    Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, "dot". Query and memory must have equal sizes.
    """

    def __init__(self, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        if self.query_size != self.memory_size:
            raise ValueError(
                f"{type(self).__name__} attention compares a query of size {self.query_size} with a memory "
                f"of size {self.memory_size}: set decoder.size to encoder.size x directions, or use "
                "attention=general"
            )

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return torch.bmm(query, keys.transpose(1, 2))  # [B, Q, S]


class ScaledDot(Dot):
    """Scaled dot-product attention (Vaswani et al., 2017).

    ::

        e_j = sᵀ h_j / √D

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.2.1. Query and memory must have equal sizes.
    """

    def project(self, memory: Memory) -> Tensor:
        return memory.states / math.sqrt(self.memory_size)


class General(Attention):
    """Bilinear attention (Luong et al., 2015).

    ::

        e_j = sᵀ W h_j

    Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, "general".
    """

    def __init__(self, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.key = nn.Linear(self.memory_size, self.query_size, bias=False)

    def project(self, memory: Memory) -> Tensor:
        return self.key(memory.states)  # type: ignore[no-any-return]

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return torch.bmm(query, keys.transpose(1, 2))  # [B, Q, S]


class Cosine(Attention):
    """Content-based addressing by cosine similarity (Graves et al., 2014).

    ::

        e_j = β cos(W s, h_j)        β = softplus(wᵀ s + b)

    Graves, Wayne & Danihelka 2014 (arXiv 1410.5401), section 3.3.1. The norm of a memory state has no
    influence. Norms below 0.001 are replaced by 0.001, which keeps gradients finite.

    Args:
        strength: initial β for a query of zeros; cosines alone differ too little for a sharp softmax.
    """

    def __init__(self, *, strength: Positive = 10.0, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.query = nn.Linear(self.query_size, self.memory_size, bias=False)
        self.strength = nn.Linear(self.query_size, 1)
        nn.init.constant_(self.strength.bias, inverse_softplus(strength))

    def project(self, memory: Memory) -> Tensor:
        return _unit_vectors(memory.states)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        cosines = torch.bmm(_unit_vectors(self.query(query)), keys.transpose(1, 2))  # [B, Q, S]
        return F.softplus(self.strength(query)) * cosines


def _unit_vectors(vectors: Tensor) -> Tensor:
    """Vectors [..., D] scaled to length 1; squares are summed in fp32 or wider."""
    return F.normalize(at_least_float32(vectors), dim=-1, eps=1e-3).to(vectors.dtype)
