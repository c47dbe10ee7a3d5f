"""Baselines without content-based attention: no context, the mean state, the final state."""

from typing import Any

import torch
from torch import Tensor

from attnlab.nn.attention.base import Attention
from attnlab.types import Memory


class NoAttention(Attention):
    """No attention: a context vector of width 0 and weights of 0.

    The decoder sees the source only through its initial state, as in Sutskever, Vinyals & Le 2014
    (arXiv 1409.3215).
    """

    @property
    def context_size(self) -> int:
        return 0

    def forward(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        weights = memory.states.new_zeros(*query.shape[:2], memory.states.size(1))
        return query[..., :0], weights, state


class Mean(Attention):
    """Uniform attention: the context is the mean of the real memory states.

    ::

        e_j = 0, hence α_j = 1/S
    """

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        return keys.new_zeros(query.size(0), query.size(1), keys.size(1))


class Final(Attention):
    """Fixed context vector: the final encoder state at every target position.

    This is RNNencdec of Cho et al. 2014 (arXiv 1406.1078), the baseline of Bahdanau et al. 2014: a fixed
    vector that every decoder step reads. For a bidirectional encoder, c = [last forward; first backward]. For
    a memory without encoder states, c is its last real position. The weights are 0, since no position is
    attended to.
    """

    def project(self, memory: Memory) -> Tensor:
        """Return the fixed vector as the keys, [B, 1, D]."""
        if memory.hidden is not None:
            return memory.hidden[:, -1:]  # [B, 1, D]
        last = (memory.mask.sum(dim=1) - 1).clamp(min=0)  # [B]
        rows = torch.arange(len(last), device=last.device)
        return memory.states[rows, last][:, None]  # [B, 1, D]

    def forward(self, query: Tensor, memory: Memory, keys: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        weights = memory.states.new_zeros(*query.shape[:2], memory.states.size(1))
        return keys.expand(-1, query.size(1), -1), weights, state
