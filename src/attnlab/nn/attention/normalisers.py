"""Normalisers: map scores to weights that are exactly 0 at padding."""

from typing import Annotated, Any, Protocol

import torch
from annotated_types import Predicate
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.nn.attention.numerics import at_least_float32
from attnlab.settings import Positive

Alpha = Annotated[
    float, Predicate(lambda value: value in (1, 1.5, 2)), "1 (softmax), 1.5 (1.5-entmax) or 2 (sparsemax)"
]


class Normaliser(Protocol):
    """Function from scores to weights.

    Weights are in fp32 or wider for any dtype of the scores, a distribution over the real positions,
    exactly 0 at padding, and 0 everywhere in a row without real positions.
    """

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return weights [..., S] of scores [..., S]; the mask is True at real tokens."""


class Entmax:
    """α-entmax (Peters et al., 2019) over the real positions: softmax, 1.5-entmax or sparsemax.

    ::

        α = 1:    α_j = exp(e_j / τ) / Σ_k exp(e_k / τ)
        α = 1.5:  α_j = max(e_j / 2τ - λ, 0)², with λ such that Σ α = 1
        α = 2:    α_j = max(e_j / τ - λ, 0), with λ such that Σ α = 1

    Peters, Niculae & Martins 2019 (arXiv 1905.05702), algorithm 2. Sparsemax (Martins & Astudillo 2016, arXiv
    1602.02068, algorithm 1) is the Euclidean projection of e / τ onto the probability simplex. Above α = 1,
    scores more than τ / (α - 1) below the largest get weight 0, and sorting costs S log S operations per
    query and at most 3·S numbers of memory.

    Args:
        alpha: 1 (softmax), 1.5 (1.5-entmax) or 2 (sparsemax); above 1 small weights are exactly 0.
        temperature: τ, which divides the scores; below 1 sharpens the weights, above 1 flattens them.
    """

    def __init__(self, alpha: Alpha = 1.0, temperature: Positive = 1.0) -> None:
        self.alpha = alpha
        self.temperature = temperature

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Return weights [..., S]; the mask is True at real tokens."""
        # With -inf at padding a fully masked row would give NaN. With a finite number it gives uniform
        # weights, which the product with the mask turns into zeros.
        scores = at_least_float32(scores)
        if self.temperature != 1:
            scores = scores / self.temperature
        scores = scores.masked_fill(~mask, -3.0e38)  # [..., S]
        if self.alpha == 1:
            return scores.softmax(dim=-1) * mask  # [..., S]
        power = round(1 / (self.alpha - 1))
        return _SparseEntmax.apply(scores, mask, power)  # type: ignore[no-any-return,no-untyped-call]


class _SparseEntmax(torch.autograd.Function):
    """α-entmax: α_j = max((α - 1) e_j - λ, 0)^p with p = 1 / (α - 1), which is 1 or 2."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, power: int) -> Tensor:
        # The largest weight is at most 1, so λ ≥ max (α - 1) e - 1. After subtracting the maximum, scores
        # below -1 get no weight; clamping them to -2 keeps the cumulative sums exact.
        scores = ((scores - scores.amax(dim=-1, keepdim=True)) / power).clamp(min=-2)  # [..., S]
        roots = (scores - _THRESHOLDS[power](scores)).clamp(min=0)  # [..., S]
        weights = roots**power  # [..., S]
        weights = weights / weights.sum(dim=-1, keepdim=True) * mask  # corrects the rounding of the sum
        ctx.save_for_backward(roots ** (power - 1) * (weights > 0))
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Multiply by the Jacobian diag(g) - g gᵀ / Σ g, where g_j = α_j^(2 - α) if α_j > 0, else 0."""
        (slopes,) = ctx.saved_tensors  # [..., S]
        # Σ g is at least Σ α = 1, except in a fully masked row, where it is 0.
        total = slopes.sum(dim=-1, keepdim=True).clamp(min=1)  # [..., 1]
        mean = (slopes * gradient).sum(dim=-1, keepdim=True) / total  # [..., 1]
        return slopes * (gradient - mean), None, None


def _sparsemax_threshold(scores: Tensor) -> Tensor:
    """Return the λ [..., 1] with Σ max(e_j - λ, 0) = 1."""
    ranked, counts = _rank(scores)  # [..., S], [S]
    thresholds = (ranked.cumsum(dim=-1) - 1) / counts  # [..., S]: λ if the support were the k largest
    return _last_supported(thresholds, ranked > thresholds)


def _entmax15_threshold(scores: Tensor) -> Tensor:
    """Return the λ [..., 1] with Σ max(e_j - λ, 0)² = 1."""
    ranked, counts = _rank(scores)  # [..., S], [S]
    mean = ranked.cumsum(dim=-1) / counts  # [..., S], of the k largest
    variance = ranked.square().cumsum(dim=-1) / counts - mean.square()  # [..., S], of the k largest
    thresholds = mean - (1 / counts - variance).clamp(min=0).sqrt()  # [..., S]: λ, as above
    return _last_supported(thresholds, ranked >= thresholds)


_THRESHOLDS = {1: _sparsemax_threshold, 2: _entmax15_threshold}


def _rank(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores [..., S] in descending order, and the support sizes 1 … S."""
    ranked = scores.sort(dim=-1, descending=True).values
    return ranked, torch.arange(1, scores.size(-1) + 1, dtype=scores.dtype, device=scores.device)


def _last_supported(thresholds: Tensor, supported: Tensor) -> Tensor:
    """Return the threshold [..., 1] at the end of the support; `supported` [..., S] is a prefix of True."""
    last = supported.sum(dim=-1, keepdim=True) - 1  # [..., 1]
    return thresholds.gather(-1, last.clamp(min=0))  # NaN has an empty support and must give NaN


SOFTMAX: Normaliser = Entmax(alpha=1)  # Default normaliser of all mechanisms
