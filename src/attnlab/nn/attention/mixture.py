"""Mixture attention: a few bells that only ever move to the right."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, weighted_sum
from attnlab.nn.attention.normalisers import SOFTMAX, Normaliser, widened
from attnlab.types import Memory

NARROWEST = 0.01
"""The least σ, so that nothing is divided by 0; all of such a bell lies on one position."""


class Mixture(Attention):
    """A mixture of K bells over the positions j = 1 … S, whose centres the decoder moves on.

    The window of Graves 2013 (arXiv 1308.0850), section 5.1, in the form "GMMv2b" of Battenberg et al. 2020
    (arXiv 1910.10288), which is trained more easily. ::

        (ŵ, Δ̂, σ̂) = V tanh(W s + b) + b'          K of each; b' for the first Δ and σ
        w = softmax(ŵ)   Δ = softplus(Δ̂)   σ = 0.01 + softplus(σ̂)
        μ_ik = μ_{i-1,k} + Δ_ik                      μ_0 = 0
        α_ij = Σ_k w_ik P(j - ½ < x < j + ½)         x ~ N(μ_ik, σ_ik²)

    The paper weighs a position by the density at j itself, which exceeds 1 where a bell is narrow; the mass
    around j is nearly the same number, and sums to at most 1: to less where a bell reaches beyond the
    sentence's ends. A bell never goes back, but the shares may pass to another that stands further left. What
    the memory holds is not looked at, and no length is in it. Positions count from the memory's first, so
    padding comes last, as in every sentence.

    Costs 2·H·A + 6·A·K + 6·S·K operations and A + 3·S·K numbers; no keys. State: the centres μ [B, Q, K].

    Args:
        query_size: H.
        memory_size: D.
        size: A.
        bells: K.
        step: Δ at first, but for what the query adds.
        width: σ at first, above 0.01; the wider, the further gradients reach.
        normaliser: not asked, since the weights are probabilities.

    Raises:
        ValueError: if there is no bell, it does not move, or it is too narrow.
    """

    stateful = True

    def __init__(
        self,
        *,
        query_size: int,
        memory_size: int,
        size: int,
        bells: int = 5,
        step: float = 1.0,
        width: float = 2.0,
        normaliser: Normaliser = SOFTMAX,
    ) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, normaliser=normaliser)
        if bells < 1 or step <= 0 or width <= NARROWEST:
            raise ValueError(
                f"attention.bells={bells} must be 1 or more, attention.step={step} above 0, and "
                f"attention.width={width} above {NARROWEST}"
            )
        self.bells = bells
        self.hidden = nn.Linear(query_size, size)
        self.shape = nn.Linear(size, 3 * bells)
        with torch.no_grad():
            offsets = torch.tensor([0.0, _softplus_inverse(step), _softplus_inverse(width - NARROWEST)])
            self.shape.bias.copy_(offsets.repeat_interleave(bells))

    def begin(self, memory: Memory) -> Tensor:
        """All centres before the first position: [B, 1, K]."""
        return widened(memory.states.new_zeros(memory.states.size(0), 1, self.bells))

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        """The mass of each position, padding or not: [B, Q, S]."""
        return self._place(query, keys.size(1), state)[0]

    def attend(
        self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As in `Attention`; the new state is where the centres have come to."""
        masses, centres = self._place(query, memory.mask.size(1), state)
        weights = masses * memory.mask[:, None]  # [B, Q, S]
        return weighted_sum(weights, memory), weights, centres

    def _place(self, query: Tensor, positions: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """The mass of each position [B, Q, S], and the new centres [B, Q, K]."""
        with torch.autocast(query.device.type, enabled=False):  # steps add up, and so does their rounding
            hidden = torch.tanh(self.hidden(query.to(self.hidden.weight.dtype)))  # [B, Q, A]
            shape = widened(self.shape(hidden))  # [B, Q, 3K]
        shares, steps, widths = shape.chunk(3, dim=-1)  # [B, Q, K] each
        centres = state + F.softplus(steps)  # [B, Q, K]
        borders = torch.arange(positions + 1, device=query.device) + 0.5  # [S + 1]: ½, 1½, … S + ½
        distances = borders - centres[..., None]  # [B, Q, K, S + 1]
        below = torch.special.ndtr(distances / (NARROWEST + F.softplus(widths))[..., None])
        return (shares.softmax(dim=-1)[..., None] * below.diff(dim=-1)).sum(dim=-2), centres


def _softplus_inverse(value: float) -> float:
    return value + math.log(-math.expm1(-value))
