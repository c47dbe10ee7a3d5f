"""Coverage attention: the score depends on the attention that each position received so far."""

from typing import Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Sizes
from attnlab.nn.attention.location import AdditiveWithHistory
from attnlab.settings import Positive, Size
from attnlab.types import Memory


class Coverage(AdditiveWithHistory):
    """Additive attention with one feature per position: the sum of its weights at all earlier steps.

    That sum is also the state.
    """

    def features(self, state: Tensor) -> Tensor:
        return state[..., None].to(self.past.weight.dtype)

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        return state + weights


class CoverageSee(Coverage):
    """Coverage attention of the pointer-generator network (See et al., 2017).

    ::

        e_ij = vᵀ tanh(W_h h_j + W_s s + w_c c_ij + b)        c_i = Σ_{i' < i} α_i'

    See, Liu & Manning 2017 (arXiv 1704.04368), section 2.3, equations 10 and 11. The coverage c_i is the
    state. `loss.terms.coverage` is the loss term of that paper.
    """

    def __init__(self, *, size: Size, **sizes: Unpack[Sizes]) -> None:
        super().__init__(size=size, features=1, feature_bias=True, **sizes)


class CoverageTu(Coverage):
    """Linguistic coverage attention with fertilities (Tu et al., 2016).

    ::

        e_ij = vᵀ tanh(W s + U h_j + V C_ij)
        C_ij = 1/N_j Σ_{i' < i} α_i'j        coverage, 1 where a word is translated completely
        N_j  = N σ(u h_j)                    fertility: expected number of target words of source word j

    Tu et al. 2016 (arXiv 1601.04811), section 3.1.1. The sum of weights is the state. Fertilities are at
    least N/100, so that C fits in half precision.

    Args:
        max_fertility: N, the largest expected number of target tokens per source token.
    """

    def __init__(self, *, size: Size, max_fertility: Positive, **sizes: Unpack[Sizes]) -> None:
        super().__init__(size=size, features=1, feature_bias=False, **sizes)
        self.max_fertility = max_fertility
        self.fertility = nn.Linear(self.memory_size, 1, bias=False)

    def project(self, memory: Memory) -> Tensor:
        """Return U h_j and, in the last column, the fertilities N_j: [B, S, A + 1]."""
        share = torch.sigmoid(self.fertility(memory.states)).clamp(min=0.01)  # [B, S, 1]
        return torch.cat([self.key(memory.states), self.max_fertility * share], dim=-1)

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        keys, fertility = keys[..., :-1], keys[..., -1]
        return super().score(query, keys, state / fertility[:, None])
