"""Attention that moves: a head that finds its place once, and then walks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, OverScores
from attnlab.nn.attention.multiplicative import General
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser, widened
from attnlab.types import Memory

TINY = 1e-30
"""Weights are not let below this before their logarithm is taken; its inverse is finite in fp32, too."""


class Head(NamedTuple):
    """Where the head stands."""

    weights: Tensor  # [B, Q, S]: of the step before, or at first what the start gives to the two ends
    begun: Tensor  # [B, Q, 1] bool


class Shift(OverScores):
    """The addressing of the Neural Turing Machine: Graves, Wayne & Danihelka 2014 (arXiv 1410.5401), 3.3.

    ::

        w^c = softmax(e)                     by content, e the score of another variant        section 3.3.1
        w^g = g w^c + (1 - g) α_{i-1}        g = σ(W_g s + b_g)                                   equation 7
        w̃_j = Σ_k w^g_{j-k} m_k              m = softmax(W_m s + b_m) over moves k = -K … K       equation 8
        α_j = w̃_j^γ / Σ w̃^γ                  γ = 1 + softplus(W_γ s + b_γ)                        equation 9

    A head that has let go of content (g = 0) and moves by -1 reads backwards, over sentences of any length.
    Two things are not the paper's. A sentence is no ring: what would leave it stays at that end of it.
    And the first step, which has no step before, does not move: with learned shares a that sum to 1 it has
    w̃ = a_1 δ_first + a_2 δ_last + a_3 w^c, so that a reader can begin at either end, however far away.

    Real positions come first and padding after, as in every sentence; a memory with gaps gives no weight to
    them, and what moves into one is shared out by the sharpening. State: α_{i-1}.

    Costs what the inner scores do, 2·H·(2·K + 3) + S·(4·K + 12) operations and S·(2·K + 12) numbers.

    Args:
        query_size: H.
        memory_size: D.
        reach: K, the farthest the head moves in a step.
        score: makes the variant that scores the content, from the two sizes.
        normaliser: from the scores to w^c.

    Raises:
        ValueError: if that variant is not one of scores alone.
    """

    stateful = True

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        reach: int = 1,
        score: Callable[..., Attention] = General,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, score=score, normaliser=normaliser)
        self.reach = reach
        self.start = nn.Parameter(torch.zeros(3))  # softmax: the shares of the first, the last, the content
        self.gate = nn.Linear(query_size, 1)
        self.moves = nn.Linear(query_size, 2 * reach + 1)
        self.sharpness = nn.Linear(query_size, 1)

    def begin(self, memory: Memory) -> Head:
        """a_1 δ_first + a_2 δ_last: [B, 1, S]."""
        first, last, _ = widened(self.start).softmax(dim=0)
        positions, end = ends(memory.mask)
        weights = first * (positions == 0) + last * (positions == end)  # [B, S]
        return Head((weights * memory.mask)[:, None], torch.zeros_like(memory.mask[:, None, :1]))

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Head) -> Tensor:
        """[B, Q, S]."""
        mask = memory.mask[:, None]  # [B, 1, S]
        content = self.normaliser(self.score(query, keys, state), mask)  # [B, Q, S]: w^c
        stay = torch.sigmoid(-widened(self.gate(query)))  # [B, Q, 1]: 1 - g
        kept = torch.where(state.begun, stay, 1.0) * state.weights  # [B, Q, S]
        # Content fills up what is kept to a whole: g of it, and at the first step the share a_3.
        weights = kept + (1 - kept.sum(dim=-1, keepdim=True)) * content  # [B, Q, S]: w^g
        moves = widened(self.moves(query)).softmax(dim=-1)  # [B, Q, 2K + 1]
        weights = torch.where(state.begun, move(weights, moves, memory.mask), weights)  # [B, Q, S]: w̃
        sharpness = 1 + F.softplus(widened(self.sharpness(query)))  # [B, Q, 1]: γ
        return SOFTMAX(sharpness * weights.clamp(min=TINY).log(), mask)

    def advance(self, state: Head, weights: Tensor) -> Head:
        """[B, Q, S]."""
        return Head(weights, torch.ones_like(weights[..., :1], dtype=torch.bool))


def move(weights: Tensor, moves: Tensor, mask: Tensor) -> Tensor:
    """Weights [B, Q, S] after moves [B, Q, 2K + 1] by -K … K, none of them beyond the ends of a sentence."""
    width, reach = mask.size(1), moves.size(-1) // 2
    copies = [F.pad(weights, (k, 2 * reach - k)) * moves[..., k, None] for k in range(2 * reach + 1)]
    moved = torch.stack(copies).sum(dim=0)  # [B, Q, S + 2K]: at the places -K … S + K - 1
    places = torch.arange(-reach, width + reach, device=mask.device)  # [S + 2K]
    positions, end = ends(mask)
    before = (moved * (places < 0)).sum(dim=-1, keepdim=True)  # [B, Q, 1]
    after = (moved * (places > end)[:, None]).sum(dim=-1, keepdim=True)  # [B, Q, 1]
    inside = moved[..., reach : reach + width] * mask[:, None]  # [B, Q, S]
    return inside + before * (positions == 0) + after * (positions == end)[:, None]


def ends(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Positions 0 … S - 1 [S], and the last real one of each row [B, 1] (-1 if there is none)."""
    positions = torch.arange(mask.size(1), device=mask.device)  # [S]
    return positions, torch.where(mask, positions, -1).amax(dim=1, keepdim=True)
