"""The baselines: what a decoder can do without choosing where to look."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attnlab.nn.attention.base import Attention
from attnlab.types import Memory


class NoAttention(Attention):
    """No context at all: c = [ ], a vector of width 0, and weights of 0.

    The decoder has the encoder's final state to start from, and nothing more: Sutskever, Vinyals & Le 2014
    (arXiv 1409.3215). Costs nothing, not even the weighted sum.
    """

    @property
    def context_size(self) -> int:
        """0."""
        return 0

    def attend(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Context [B, Q, 0] and weights [B, Q, S] of zeros."""
        weights = memory.states.new_zeros(*query.shape[:2], memory.states.size(1))
        return query[..., :0], weights, state


class Mean(Attention):
    """e_j = 0, so that α_j = 1/S and c is the mean of the real memory states.

    Costs nothing but the weighted sum.
    """

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """[B, Q, S] of zeros."""
        return keys.new_zeros(query.size(0), query.size(1), keys.size(1))


class Final(Attention):
    """c = the encoder's last state, at every step: the fixed vector of Cho et al. 2014 (arXiv 1406.1078).

    This is RNNencdec, the baseline of Bahdanau et al. 2014, in which the vector feeds every step of the
    decoder. For both directions, c = [last forward; first backward]. A memory that no encoder made ends at
    its last real position. Its weights are 0: no position was looked at. Costs no operations, and D numbers
    once a sentence.
    """

    def project(self, memory: Memory) -> Tensor:
        """The fixed vector, as keys [B, 1, D]."""
        if memory.hidden is not None:
            return memory.hidden[:, -1:]  # [B, 1, D]
        last = (memory.mask.sum(dim=1) - 1).clamp(min=0)  # [B]
        rows = torch.arange(len(last), device=last.device)
        return memory.states[rows, last][:, None]  # [B, 1, D]

    def attend(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Context [B, Q, D], weights [B, Q, S] of zeros."""
        weights = memory.states.new_zeros(*query.shape[:2], memory.states.size(1))
        return keys.expand(-1, query.size(1), -1), weights, state


def is_constant(attention: Attention) -> bool:
    """Return whether context and weights are the same for every query, so that one call serves all positions.

    Types are compared exactly: a subclass may have a score that depends on the query.
    """
    return type(attention) in (NoAttention, Mean, Final)
