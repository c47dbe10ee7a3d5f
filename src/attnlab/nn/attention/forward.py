"""Forward attention: scores that count only where one can get to from where one was."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.attention.base import Attention, make_inner
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser, widened
from attnlab.types import Memory

TINY = 1e-30
"""A position that less weight than this can come to is out of reach; its inverse is finite in fp32, too."""


class Forward(Attention):
    """α_ij ∝ (α_{i-1,j} + α_{i-1,j-1}) exp(e_ij): Zhang, Ling & Dai 2018 (arXiv 1807.06736), algorithm 1.

    Of all paths through the sentence only those are summed up that stay or go on by one position at every
    step, from the first one on: α_0 = (1, 0, …). Unlike a monotonic head, which has to stop somewhere for
    good, it is the same in training and in decoding, and always a distribution. e may be the scores of any
    other variant. The first factor is added to e as a logarithm, so another normaliser than softmax takes
    their sum; for softmax that is the equation above.

    Per query the inner score, and 6·S operations; no memory that grows with S·D. State: α_{i-1} [B, Q, S].

    Args:
        query_size: H.
        memory_size: D.
        score: makes the variant that scores, from the two sizes.
        normaliser: from scores to weights, among the positions that can be reached.

    Raises:
        ValueError: if that variant is not one of scores alone.
    """

    stateful = True

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        score: Callable[..., Attention],
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        self.inner = make_inner(score, query_size, memory_size)

    def project(self, memory: Memory) -> Tensor:
        """The inner variant's keys."""
        return self.inner.project(memory)

    def begin(self, memory: Memory) -> Tensor:
        """All on the first position: [B, 1, S]."""
        head = widened(memory.states.new_zeros(memory.mask.shape))[:, None]  # [B, 1, S]
        head[..., 0] = 1
        return head

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        """The inner variant's scores: [B, Q, S]."""
        return self.inner.score(query, keys, None)

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> Tensor:
        """[B, Q, S]."""
        arriving = state + F.pad(state, (1, -1))  # [B, Q, S]
        scores = widened(self.score(query, keys, state)) + arriving.clamp(min=TINY).log()  # [B, Q, S]
        return self.normaliser(scores, memory.mask[:, None] & (arriving > TINY))

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        """α_i: [B, Q, S]."""
        return weights
