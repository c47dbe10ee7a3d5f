"""Additive attention, the root of the family, in both of its published forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser
from attnlab.nn.fused import sum_energies
from attnlab.nn.fused.linear import Linear, linear
from attnlab.types import Memory


def additive_energy(query: Tensor, keys: Tensor, energy: nn.Linear) -> Tensor:
    """vᵀ tanh(q + k_j) [B, Q, S] of mapped queries [B, Q, A] and keys [B, 1 or Q, S, A]."""
    if keys.size(1) == 1 and (query.size(1) > 1 or not torch.is_grad_enabled()):
        return sum_energies(query, keys[:, 0], energy.weight[0])  # no [B, Q, S, A] is kept
    summed = query[:, :, None] + keys  # [B, Q, S, A]
    return energy(torch.tanh(summed)).squeeze(-1)  # type: ignore[no-any-return]  # [B, Q, S]


class Additive(Attention):
    """e_j = vᵀ tanh(W s + U h_j): Bahdanau, Cho & Bengio 2014 (arXiv 1409.0473), section A.1.2.

    Costs 2·H·A + 4·S·A operations and S·A numbers; the keys U h_j cost 2·S·D·A and S·A once a sentence. An
    offset on v would shift all scores of a row alike, which the softmax undoes, so v has none.

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        bias: add an offset to W s and to U h_j.
        normaliser: from scores to weights.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        bias: bool = False,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        self.query = Linear(query_size, size, bias=bias)
        self.key = Linear(memory_size, size, bias=bias)
        self.energy = nn.Linear(size, 1, bias=False)

    def project(self, memory: Memory) -> Tensor:
        """U h_j: [B, S, A]."""
        return self.key(memory.states)  # type: ignore[no-any-return]

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """[B, Q, S]."""
        return additive_energy(self.query(query), keys[:, None], self.energy)


class Concat(Attention):
    """e_j = vᵀ tanh(W [s; h_j]): Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.1, "concat".

    With W = [W_s U] this is `Additive`, from other random weights at the start: the one matrix is drawn for
    H + D inputs. Since W [s; h_j] = W_s s + U h_j, no pair is put together, and the cost is the same:
    2·H·A + 4·S·A operations and S·A numbers; the keys U h_j cost 2·S·D·A and S·A once a sentence.

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        bias: add an offset to W [s; h_j].
        normaliser: from scores to weights.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        bias: bool = False,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        self.pair = Linear(query_size + memory_size, size, bias=bias)
        self.energy = nn.Linear(size, 1, bias=False)

    def project(self, memory: Memory) -> Tensor:
        """U h_j, and the offset: [B, S, A]."""
        return linear(memory.states, self.pair.weight[:, self.query_size :], self.pair.bias)

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """[B, Q, S]."""
        mapped = linear(query, self.pair.weight[:, : self.query_size])  # [B, Q, A]
        return additive_energy(mapped, keys[:, None], self.energy)
