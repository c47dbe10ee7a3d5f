"""Local attention: a window over the memory, and a score inside it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, OverScores
from attnlab.nn.attention.multiplicative import General
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser, widened
from attnlab.types import Memory


class Windowed(OverScores):
    """α = softmax of a score of another variant, over the real positions within D of a centre p.

    Where no real position is, all weights are 0. The scores of all positions are computed and those outside
    the window left out, so a window changes what is seen and not what it costs.

    Args:
        query_size: H.
        memory_size: D.
        window: D of the paper, on either side of the centre.
        score: makes the variant whose `project` and `score` are used, from the two sizes.
        normaliser: from scores to weights.

    Raises:
        ValueError: if that variant is not one of scores alone, or the window is too small to hold anything.
    """

    smallest = 0  # window that makes sense

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        window: int,
        score: Callable[..., Attention] = General,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, score=score, normaliser=normaliser)
        if window < self.smallest:
            raise ValueError(f"attention.window must be {self.smallest} or more, not {window}")
        self.window = window

    def within(self, query: Tensor, memory: Memory, keys: Tensor, offsets: Tensor) -> Tensor:
        """The normalised scores [B, Q, S] of the positions j with |j - p| ≤ D, given j - p [B, Q, S]."""
        seen = memory.mask[:, None] & (offsets.abs() <= self.window)  # [B, Q, S]
        return self.normaliser(self.score(query, keys, None), seen)


class LocalM(Windowed):
    """Local attention, monotonic, p_t = t: Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.2.

    α = softmax of the scores of the positions t - D … t + D. State: t, counted from 0 as the positions are.
    Past the sentence's end by more than D there is nothing in the window, and α = 0.

    Costs what the inner scores do, and 4·S operations and S numbers.

    Args:
        query_size: H.
        memory_size: D.
        window: D of the paper, 0 or more.
        score: makes the variant that scores.
        normaliser: from scores to weights.
    """

    stateful = True

    def begin(self, memory: Memory) -> Tensor:
        """The counter [B, 1, 1]: t = 0."""
        return torch.zeros_like(memory.mask[:, None, :1], dtype=torch.int64)

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> Tensor:
        """[B, Q, S]."""
        positions = torch.arange(memory.mask.size(1), device=state.device)  # [S]
        return self.within(query, memory, keys, positions - state)

    def advance(self, state: Tensor, weights: Tensor) -> Tensor:
        """The counter [B, Q, 1]: t + 1."""
        return (state + 1).expand(-1, weights.size(1), -1)


class LocalP(Windowed):
    """Local attention, predictive: Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.2.

    ::

        p   = S σ(vᵀ tanh(W s))                                    equation 9; S of this very sentence
        α_j = softmax(e)_j exp(-(j - p)² / 2σ²), |j - p| ≤ D, σ = D/2      equation 10; j = 1 … S

    The bell multiplies weights that sum to 1 already, so these sum to less: far from p, the context fades.

    Costs what the inner scores do, 2·H·A + 3·A + 9·S operations and A + 4·S numbers.

    Args:
        query_size: H.
        memory_size: D.
        size: A, of W.
        window: D of the paper, 1 or more.
        score: makes the variant that scores.
        normaliser: from scores to weights.
    """

    smallest = 1  # the bell of a window of 0 has no width

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        window: int,
        score: Callable[..., Attention] = General,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(
            query_size=query_size,
            memory_size=memory_size,
            window=window,
            score=score,
            normaliser=normaliser,
        )
        self.hidden = nn.Linear(query_size, size, bias=False)
        self.place = nn.Linear(size, 1, bias=False)

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: None) -> Tensor:
        """[B, Q, S]."""
        share = torch.sigmoid(widened(self.place(torch.tanh(self.hidden(query)))))  # [B, Q, 1]
        centre = memory.mask.sum(dim=1)[:, None, None] * share  # [B, Q, 1]: p
        positions = torch.arange(1, memory.mask.size(1) + 1, device=query.device)  # [S]
        offsets = positions - centre  # [B, Q, S]
        bell = torch.exp(-2 * (offsets / self.window).square())  # [B, Q, S]: 1/2σ² = 2/D²
        return self.within(query, memory, keys, offsets) * bell
