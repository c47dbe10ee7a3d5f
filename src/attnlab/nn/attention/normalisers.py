"""Normalisers: from scores to weights that are exactly 0 wherever there is no token."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Normaliser(Protocol):
    """Turns scores [..., S] into weights.

    The mask is bool, broadcastable to [..., S], True at real positions. Weights come in fp32 or wider
    whatever the scores came in, are a distribution over the real positions and exactly 0 elsewhere, and all
    zeros where a row has no real position.
    """

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """[..., S] to [..., S]."""
        ...


class Softmax:
    """α_j = exp(e_j / τ) / Σ_k exp(e_k / τ) over the real positions.

    Args:
        temperature: τ; below 1 sharpens, above 1 flattens.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        if temperature <= 0:
            raise ValueError(f"normaliser.temperature must be above 0, not {temperature}")
        self.temperature = temperature

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """[..., S] to [..., S]."""
        # The lowest finite number, not -inf: a row masked whole then gives a uniform row, not NaN,
        # and the product with the mask makes it the zeros it should be.
        scores = (widened(scores) / self.temperature).masked_fill(~mask, -3.0e38)  # [..., S]
        return scores.softmax(dim=-1) * mask  # [..., S]


SOFTMAX: Normaliser = Softmax()
"""What attention is normalised with unless it is told otherwise."""


def widened(scores: Tensor) -> Tensor:
    """Scores in fp32 at least, so that ± 10⁴ stays finite whatever they were computed in."""
    return scores.double() if scores.dtype.itemsize == 8 else scores.float()
