"""Neural Turing Machine addressing: attention by content, or by moving the previous weights."""

from collections.abc import Callable
from typing import NamedTuple, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, ScoreWrapper, Sizes
from attnlab.nn.attention.multiplicative import General
from attnlab.nn.attention.normalisers import SOFTMAX
from attnlab.nn.attention.numerics import SMALLEST_WEIGHT, at_least_float32
from attnlab.settings import AtLeastOne, Finite, Size
from attnlab.types import Memory


class ShiftState(NamedTuple):
    """State of `Shift` between two target positions."""

    weights: Tensor  # [B, Q, S]: previous weights; initially the shares of the first and the last position
    started: Tensor  # [B, Q, 1] bool: whether there is a previous target position


class Shift(ScoreWrapper):
    """Addressing of the Neural Turing Machine (Graves et al., 2014).

    ::

        w^c = softmax(e)                     content addressing by the inner scores e
        w^g = g w^c + (1 - g) α_{i-1}        interpolation, g = σ(W_g s + b_g)
        w̃_j = Σ_k w^g_{j-k} m_k              shift by k = -K … K, m = softmax(W_m s + b_m)
        α_j = w̃_j^γ / Σ w̃^γ                  sharpening, γ = γ₀ + softplus(W_γ s + b_γ)

    Graves, Wayne & Danihelka 2014 (arXiv 1410.5401), section 3.3, equations 7 to 9. With g = 0 and a shift by
    -1 the weights move backwards over sentences of any length. There are two differences from the paper.
    Positions are not circular: weight shifted beyond an end stays at that end. The first step, which has no
    previous weights, does not shift: w̃ = a_1 δ_first + a_2 δ_last + a_3 w^c with learned shares a that sum
    to 1, so that decoding can start at either end of a sentence of any length.

    With γ₀ = 1, that of the paper, a head can learn to read a mixture of two or three positions, which move
    together. γ near 1 preserves the mixture over the steps of training, and it decays over more steps. γ₀ > 1
    sharpens it to its largest position.

    Padding should come last; positions inside a gap of the mask get no weight, and weight shifted into one is
    redistributed by the sharpening. State: α_{i-1}.

    Args:
        reach: K, the largest shift per step in either direction, in positions.
        gate_bias: added to the initial b_g; below 0, an untrained network mainly moves the previous weights.
        least_sharpness: γ₀.
        normaliser: computes w^c.
    """

    stateful = True

    def __init__(
        self,
        *,
        reach: Size = 1,
        gate_bias: Finite = 0.0,
        least_sharpness: AtLeastOne = 1.0,
        score: Callable[..., Attention] = General,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(score=score, **sizes)
        self.reach = reach
        self.least_sharpness = least_sharpness
        self.start = nn.Parameter(torch.zeros(3))  # logits of the shares of first, last and content
        self.gate = nn.Linear(self.query_size, 1)
        with torch.no_grad():
            self.gate.bias.add_(gate_bias)
        self.moves = nn.Linear(self.query_size, 2 * reach + 1)
        self.sharpness = nn.Linear(self.query_size, 1)

    def begin(self, memory: Memory) -> ShiftState:
        first, last, _ = at_least_float32(self.start).softmax(dim=0)
        positions, end = _positions_and_end(memory.mask)
        weights = first * (positions == 0) + last * (positions == end)  # [B, S]
        return ShiftState((weights * memory.mask)[:, None], torch.zeros_like(memory.mask[:, None, :1]))

    def weigh(
        self, query: Tensor, memory: Memory, keys: Tensor, state: ShiftState
    ) -> tuple[Tensor, ShiftState]:
        mask = memory.mask[:, None]  # [B, 1, S]
        content = self.normaliser(self.score(query, keys, state), mask)  # [B, Q, S]: w^c
        keep = torch.sigmoid(-at_least_float32(self.gate(query)))  # [B, Q, 1]: 1 - g
        kept = torch.where(state.started, keep, 1.0) * state.weights  # [B, Q, S]
        # Content gets the rest of the mass: g after the first step, the share a_3 at the first step.
        weights = kept + (1 - kept.sum(dim=-1, keepdim=True)) * content  # [B, Q, S]: w^g
        moves = at_least_float32(self.moves(query)).softmax(dim=-1)  # [B, Q, 2K + 1]
        weights = torch.where(state.started, shift_weights(weights, moves, memory.mask), weights)  # w̃
        sharpness = F.softplus(at_least_float32(self.sharpness(query))) + self.least_sharpness  # [B, Q, 1]: γ
        weights = SOFTMAX(sharpness * weights.clamp(min=SMALLEST_WEIGHT).log(), mask)  # [B, Q, S]: α
        return weights, ShiftState(weights, torch.ones_like(weights[..., :1], dtype=torch.bool))


def shift_weights(weights: Tensor, moves: Tensor, mask: Tensor) -> Tensor:
    """Convolve weights [B, Q, S] with a distribution of shifts; those beyond an end stay at that end.

    Args:
        weights: [B, Q, S].
        moves: [B, Q, 2K + 1], the probabilities of shifts by -K … K positions.
        mask: [B, S], True at real tokens.
    """
    width, reach = mask.size(1), moves.size(-1) // 2
    copies = [F.pad(weights, (k, 2 * reach - k)) * moves[..., k, None] for k in range(2 * reach + 1)]
    moved = torch.stack(copies).sum(dim=0)  # [B, Q, S + 2K]: at the places -K … S + K - 1
    places = torch.arange(-reach, width + reach, device=mask.device)  # [S + 2K]
    positions, end = _positions_and_end(mask)
    before = (moved * (places < 0)).sum(dim=-1, keepdim=True)  # [B, Q, 1]
    after = (moved * (places > end)[:, None]).sum(dim=-1, keepdim=True)  # [B, Q, 1]
    inside = moved[..., reach : reach + width] * mask[:, None]  # [B, Q, S]
    return inside + before * (positions == 0) + after * (positions == end)[:, None]


def _positions_and_end(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions 0 … S - 1, [S], and the last real one of each row, [B, 1], or -1 without any."""
    positions = torch.arange(mask.size(1), device=mask.device)  # [S]
    return positions, torch.where(mask, positions, -1).amax(dim=1, keepdim=True)
