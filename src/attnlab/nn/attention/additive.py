"""Additive attention in its two published parametrisations."""

from typing import Any, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, Sizes
from attnlab.settings import Size
from attnlab.types import Memory


class Energy(nn.Linear):
    """The vector v of additive scores vᵀ tanh(q + k_j)."""

    def __init__(self, size: int) -> None:
        super().__init__(size, 1, bias=False)

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores [B, Q, S] of queries [B, Q, A] and keys [B, S, A] or, one per query, [B, Q, S, A]."""
        keys = keys[:, None] if keys.dim() == 3 else keys  # [B, 1 or Q, S, A]
        return F.linear(torch.tanh(query[:, :, None] + keys), self.weight).squeeze(-1)


class Additive(Attention):
    """Additive attention (Bahdanau et al., 2014).

    ::

        e_j = vᵀ tanh(W s + U h_j)

    Bahdanau, Cho & Bengio 2014 (arXiv 1409.0473), section A.1.2. v has no bias: it would shift all scores of
    a query equally, which softmax cancels.

    Args:
        size: A, the width of the hidden layer.
        bias: add a bias b inside the tanh, to W s and to U h_j.
    """

    def __init__(self, *, size: Size, bias: bool = False, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.query = nn.Linear(self.query_size, size, bias=bias)
        self.key = nn.Linear(self.memory_size, size, bias=bias)
        self.energy = Energy(size)

    def project(self, memory: Memory) -> Tensor:
        return self.key(memory.states)  # type: ignore[no-any-return]

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return self.energy.score(self.query(query), keys)


class Concat(Attention):
    """Concat attention (Luong et al., 2015).

    ::

        e_j = vᵀ tanh(W [s; h_j])

    Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1. With W = [W_s U] the function is that of
    `Additive`, with a different initialisation: the single matrix is initialised for H + D inputs. The
    implementation adds W_s s and U h_j instead of concatenating every pair, so that the cost is the same.

    Args:
        size: A, the width of the hidden layer.
        bias: add a bias b inside the tanh.
    """

    def __init__(self, *, size: Size, bias: bool = False, **sizes: Unpack[Sizes]) -> None:
        super().__init__(**sizes)
        self.pair = nn.Linear(self.query_size + self.memory_size, size, bias=bias)
        self.energy = Energy(size)

    def project(self, memory: Memory) -> Tensor:
        return F.linear(memory.states, self.pair.weight[:, self.query_size :], self.pair.bias)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        projected = F.linear(query, self.pair.weight[:, : self.query_size])  # [B, Q, A]
        return self.energy.score(projected, keys)
