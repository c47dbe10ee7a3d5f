"""Coverage: attention that counts how much of each position it has used up."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.location import AdditiveWithPast
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser
from attnlab.types import Memory


class Coverage(AdditiveWithPast):
    """Additive attention with one feature a position: how much it got in all steps before, its state."""

    def features(self, state: Tensor) -> Tensor:
        """[B, Q, S, 1]."""
        return state[..., None].to(self.past.weight.dtype)

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        """Σ α, this step's added: [B, Q, S]."""
        return state + weights


class CoverageSee(Coverage):
    """e_ij = vᵀ tanh(W_h h_j + W_s s + w_c c_ij + b): See, Liu & Manning 2017 (arXiv 1704.04368).

    Section 2.3, equations 10 and 11; the coverage c_i = Σ_{i' < i} α_i' is the state. `coverage_loss` is
    its companion.

    Costs 2·H·A + 7·S·A operations and S·(A + 1) numbers; the keys W_h h_j cost 2·S·D·A and S·A once a
    sentence.

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        normaliser: from scores to weights.
    """

    def __init__(
        self, *, query_size: int, memory_size: int, size: int, normaliser: Normaliser = SOFTMAX
    ) -> None:
        super().__init__(
            query_size=query_size,
            memory_size=memory_size,
            size=size,
            features=1,
            bias=True,
            normaliser=normaliser,
        )


class CoverageTu(Coverage):
    """e_ij = vᵀ tanh(W s + U h_j + V C_ij): Tu et al. 2016 (arXiv 1601.04811), the linguistic coverage model.

    ::

        C_ij = 1/N_j Σ_{i' < i} α_i'j        section 3.1.1: 1 where a word is translated whole
        N_j  = N σ(u h_j)                    its fertility: how many target words it makes

    The sum is the state. A fertility is not let below N/100, so that C stays within what half precision
    holds.

    Costs 2·H·A + S·(6·A + 1) operations and S·(A + 2) numbers; the keys U h_j and the fertilities cost
    2·S·D·(A + 1) and S·(A + 1) once a sentence.

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        max_fertility: N.
        normaliser: from scores to weights.
    """

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        max_fertility: float,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(
            query_size=query_size,
            memory_size=memory_size,
            size=size,
            features=1,
            bias=False,
            normaliser=normaliser,
        )
        self.max_fertility = max_fertility
        self.fertility = nn.Linear(memory_size, 1, bias=False)

    def project(self, memory: Memory) -> Tensor:
        """U h_j, and behind it N_j: [B, S, A + 1]."""
        share = torch.sigmoid(self.fertility(memory.states)).clamp(min=0.01)  # [B, S, 1]
        return torch.cat([self.key(memory.states), self.max_fertility * share], dim=-1)

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        """[B, Q, S]."""
        keys, fertility = keys[..., :-1], keys[..., -1]
        return super().score(query, keys, state / fertility[:, None])


def coverage_loss(weights: Tensor, real: Tensor) -> Tensor:
    """Σ_j min(α_tj, c_tj) with c_t = Σ_{t' < t} α_t', on average over the real target positions.

    What a step gives again to positions that have had it: See, Liu & Manning 2017 (arXiv 1704.04368),
    equation 12. It asks for weights alone, so any mechanism can be trained with it.

    Args:
        weights: [B, T, S], 0 on padding.
        real: [B, T], True at real target positions.

    Returns:
        A scalar; 0 if there is no real position.
    """
    before = F.pad(weights.cumsum(dim=1)[:, :-1], (0, 0, 1, 0))  # [B, T, S]: c_t
    repeated = torch.minimum(weights, before).sum(dim=-1)  # [B, T]
    return (repeated * real).sum() / real.sum().clamp(min=1)
