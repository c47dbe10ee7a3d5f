"""Mixture attention: Gaussian components over positions that only move forward."""

from typing import Annotated, Unpack

import torch
import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor, nn

from attnlab.nn.attention.base import Attention, Sizes
from attnlab.nn.attention.numerics import at_least_float32, inverse_softplus
from attnlab.settings import Positive, Size
from attnlab.types import Memory

MINIMUM_WIDTH = 0.01
"""Lower bound of σ, which avoids division by 0; such a component has all its mass on one position."""


class Mixture(Attention):
    """Gaussian mixture attention over positions (Graves, 2013; Battenberg et al., 2020).

    ::

        (ŵ, Δ̂, σ̂) = V tanh(W s + b) + b'          K of each; b' sets the initial Δ and σ
        w = softmax(ŵ)   Δ = softplus(Δ̂)   σ = 0.01 + softplus(σ̂)
        μ_ik = μ_{i-1,k} + Δ_ik                      μ_0 = 0
        α_ij = Σ_k w_ik P(j - ½ < x < j + ½)         x ~ N(μ_ik, σ_ik²), j = 1 … S

    Graves 2013 (arXiv 1308.0850), section 5.1, in the parametrisation "GMMv2b" of Battenberg et al. 2020
    (arXiv 1910.10288), which trains more stably. The paper uses the density at j, which exceeds 1 for narrow
    components; the probability mass around j sums to at most 1. Means never decrease, but the mixture weights
    w may shift to a component further left. The weights do not depend on the memory. Padding must come last.

    State: the means μ, [B, Q, K].

    Args:
        size: A, the width of the hidden layer.
        components: K, the number of Gaussians.
        step: initial Δ, the move of a component per step, in positions, for a hidden layer of zeros.
        width: initial σ, the standard deviation of a component, in positions, for a hidden layer of zeros;
            gradients of wider components reach further.
        normaliser: not used, since the weights are probabilities.
    """

    stateful = True

    def __init__(
        self,
        *,
        size: Size,
        components: Size = 5,
        step: Positive = 1.0,
        width: Annotated[float, Gt(0.01)] = 2.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(**sizes)
        self.components = components
        self.hidden = nn.Linear(self.query_size, size)
        self.shape = nn.Linear(size, 3 * components)
        with torch.no_grad():
            biases = torch.tensor([0.0, inverse_softplus(step), inverse_softplus(width - MINIMUM_WIDTH)])
            self.shape.bias.copy_(biases.repeat_interleave(components))

    def begin(self, memory: Memory) -> Tensor:
        return at_least_float32(memory.states.new_zeros(memory.states.size(0), 1, self.components))

    def score(self, query: Tensor, keys: Tensor, state: Tensor) -> Tensor:
        """Return the probability mass of each position, including padding: [B, Q, S]."""
        return self._masses(query, keys.size(1), state)[0]

    def weigh(self, query: Tensor, memory: Memory, keys: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        masses, means = self._masses(query, memory.mask.size(1), state)
        return masses * memory.mask[:, None], means

    def _masses(self, query: Tensor, positions: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mass of each position [B, Q, S] and the new means [B, Q, K]."""
        with torch.autocast(query.device.type, enabled=False):  # rounding errors of the steps accumulate
            hidden = torch.tanh(self.hidden(query.to(self.hidden.weight.dtype)))  # [B, Q, A]
            shape = at_least_float32(self.shape(hidden))  # [B, Q, 3K]
        logits, steps, widths = shape.chunk(3, dim=-1)  # [B, Q, K] each
        means = state + F.softplus(steps)  # [B, Q, K]
        edges = torch.arange(positions + 1, device=query.device) + 0.5  # [S + 1]: ½, 1½, … S + ½
        distances = edges - means[..., None]  # [B, Q, K, S + 1]
        cumulative = torch.special.ndtr(distances / (MINIMUM_WIDTH + F.softplus(widths))[..., None])
        return (logits.softmax(dim=-1)[..., None] * cumulative.diff(dim=-1)).sum(dim=-2), means
