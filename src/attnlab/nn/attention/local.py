"""Local attention: weights within a window around one position."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, ScoreWrapper, Sizes
from attnlab.nn.attention.multiplicative import General
from attnlab.nn.attention.numerics import at_least_float32
from attnlab.settings import Size
from attnlab.types import Memory


class Windowed(ScoreWrapper):
    """Base class of attention within D positions of a centre p, by the scores of an inner mechanism.

    All weights are 0 where the window contains no real position.

    Args:
        window: D, the number of positions on either side of the centre (10 in the paper).
    """

    def __init__(
        self, *, window: Size, score: Callable[..., Attention] = General, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(score=score, **sizes)
        self.window = window

    def weigh_window(self, query: Tensor, memory: Memory, keys: Tensor, offsets: Tensor) -> Tensor:
        """Return weights [B, Q, S] of the positions j with |j - p| ≤ D, given offsets j - p [B, Q, S]."""
        inside = memory.mask[:, None] & (offsets.abs() <= self.window)  # [B, Q, S]
        return self.normaliser(self.score(query, keys, None), inside)


class LocalM(Windowed):
    """Local attention with a monotonic window, "local-m" (Luong et al., 2015).

    ::

        α = softmax(e_{t-D} … e_{t+D})        at target position t

    Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.2. State: t, counted from 0 like the positions.
    Where t exceeds the last position by more than D, the window is empty and α = 0.
    """

    stateful = True

    def begin(self, memory: Memory) -> Tensor:
        return torch.zeros_like(memory.mask[:, None, :1], dtype=torch.int64)

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.arange(memory.mask.size(1), device=state.device)  # [S]
        weights = self.weigh_window(query, memory, keys, positions - state)  # [B, Q, S]
        return weights, (state + 1).expand(-1, query.size(1), -1)


class LocalP(Windowed):
    """Local attention with a predicted window, "local-p" (Luong et al., 2015).

    ::

        p   = S σ(vᵀ tanh(W s))                                            S: length of this sentence
        α_j = softmax(e)_j exp(-(j - p)² / 2σ²), |j - p| ≤ D, σ = D/2      j = 1 … S

    Luong, Pham & Manning 2015 (arXiv 1508.04025), section 3.2, equations 9 and 10. The Gaussian multiplies
    weights that already sum to 1, so the weights sum to less than 1.

    Args:
        size: A, the number of rows of W.
    """

    def __init__(
        self, *, size: Size, window: Size, score: Callable[..., Attention] = General, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(window=window, score=score, **sizes)
        self.hidden = nn.Linear(self.query_size, size, bias=False)
        self.place = nn.Linear(size, 1, bias=False)

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: None) -> tuple[Tensor, None]:
        share = torch.sigmoid(at_least_float32(self.place(torch.tanh(self.hidden(query)))))  # [B, Q, 1]
        centre = memory.mask.sum(dim=1)[:, None, None] * share  # [B, Q, 1]: p
        positions = torch.arange(1, memory.mask.size(1) + 1, device=query.device)  # [S]
        offsets = positions - centre  # [B, Q, S]
        gaussian = torch.exp(-2 * (offsets / self.window).square())  # [B, Q, S]: 1/2σ² = 2/D²
        return self.weigh_window(query, memory, keys, offsets) * gaussian, None
