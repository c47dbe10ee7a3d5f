"""Forward attention: scores that count only where one can get to from where one was."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.attention.base import OverScores
from attnlab.nn.attention.normalisers import widened
from attnlab.types import Memory

TINY = 1e-30
"""A position that less weight than this can come to is out of reach; its inverse is finite in fp32, too."""


class Forward(OverScores):
    """α_ij ∝ (α_{i-1,j} + α_{i-1,j-1}) y_ij: Zhang, Ling & Dai 2018 (arXiv 1807.06736), algorithm 1.

    y = softmax(e), of the scores of any other variant. Of all paths through the sentence only those count
    that stay or go on by one position at every step, from the first one on: α_0 = (1, 0, …). Unlike a
    monotonic head, which has to stop somewhere for good, it is the same in training and in decoding, and
    its weights always sum to 1.

    y may be made by another normaliser, too; of one that gives weights of exactly 0, gradients are now and
    then very large. Real positions come first and padding after, as in every sentence: a gap in a memory is
    never crossed.

    Costs what the inner scores do, and 5·S operations and 4·S numbers. State: α_{i-1} [B, Q, S].

    Args:
        query_size: H.
        memory_size: D.
        score: makes the variant that scores, from the two sizes.
        normaliser: from scores to y, among the positions that can be reached.

    Raises:
        ValueError: if that variant is not one of scores alone.
    """

    stateful = True

    def begin(self, memory: Memory) -> Tensor:
        """All on the first position: [B, 1, S]."""
        head = widened(memory.states.new_zeros(memory.mask.shape))[:, None]  # [B, 1, S]
        head[..., 0] = 1
        return head

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> Tensor:
        """[B, Q, S]."""
        arriving = state + F.pad(state, (1, -1))  # [B, Q, S]
        reachable = memory.mask[:, None] & (arriving > TINY)
        paths = arriving * self.normaliser(self.score(query, keys, state), reachable)  # [B, Q, S]
        # As y sums to 1 among what is reachable, this is at least TINY / S, but in a row masked whole.
        total = paths.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(paths.dtype).tiny)
        return paths / total

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        """α_i: [B, Q, S]."""
        return weights
