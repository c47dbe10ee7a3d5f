"""Normalisers: from scores to weights that are exactly 0 wherever there is no token."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Normaliser(Protocol):
    """Turns scores [..., S] into weights.

    The mask is bool, broadcastable to [..., S], True at real positions. Weights come in fp32 or wider
    whatever the scores came in, are a distribution over the real positions and exactly 0 elsewhere, and all
    zeros where a row has no real position.
    """

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """[..., S] to [..., S]."""
        ...


class _Tempered:
    """A normaliser of scores that are first divided by τ.

    Args:
        temperature: τ; below 1 sharpens, above 1 flattens.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        if temperature <= 0:
            raise ValueError(f"normaliser.temperature must be above 0, not {temperature}")
        self.temperature = temperature

    def temper(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Scores / τ [..., S] in fp32 or wider, the lowest finite number where there is no token.

        Not -inf: a row masked whole then gives a uniform row, not NaN, and the product with the mask makes it
        the zeros it should be.
        """
        return (widened(scores) / self.temperature).masked_fill(~mask, -3.0e38)  # [..., S]


class Softmax(_Tempered):
    """α_j = exp(e_j / τ) / Σ_k exp(e_k / τ) over the real positions."""

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """[..., S] to [..., S]."""
        return self.temper(scores, mask).softmax(dim=-1) * mask  # [..., S]


class Sparsemax(_Tempered):
    """α = the distribution nearest to e / τ: α_j = max(e_j / τ - λ, 0), with λ such that Σ α = 1.

    Martins & Astudillo 2016 (arXiv 1602.02068), algorithm 1. A score further than τ below the largest has a
    weight of exactly 0. Sorting costs S log S operations per query and 2·S numbers of memory.
    """

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """[..., S] to [..., S]."""
        return _Entmax.apply(self.temper(scores, mask), mask, 1)  # type: ignore[no-any-return,no-untyped-call]


class Entmax15(_Tempered):
    """α_j = max(e_j / 2τ - λ, 0)², with λ such that Σ α = 1: between softmax and sparsemax.

    The α-entmax of Peters, Niculae & Martins 2019 (arXiv 1905.05702) with α = 1.5, by their algorithm 2. A
    score further than 2τ below the largest has a weight of exactly 0. Sorting costs S log S operations per
    query and 3·S numbers of memory.
    """

    def __call__(self, scores: Tensor, mask: Tensor) -> Tensor:
        """[..., S] to [..., S]."""
        return _Entmax.apply(self.temper(scores, mask), mask, 2)  # type: ignore[no-any-return,no-untyped-call]


class _Entmax(torch.autograd.Function):
    """α-entmax, α_j = max((α - 1) e_j - λ, 0)^p, where p = 1 / (α - 1) is 1 or 2."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, power: int) -> Tensor:
        """[..., S] to [..., S]."""
        # The largest weight is at most 1, so λ is at least the largest (α - 1) e less 1. With the largest
        # moved to 0 whatever lies below -1 has no weight, and may as well be -2: sums stay exact.
        scores = ((scores - scores.amax(dim=-1, keepdim=True)) / power).clamp(min=-2)  # [..., S]
        roots = (scores - _THRESHOLDS[power](scores)).clamp(min=0)  # [..., S]
        weights = roots**power  # [..., S]
        weights = weights / weights.sum(dim=-1, keepdim=True) * mask  # the sum is 1 but for rounding
        ctx.save_for_backward(roots ** (power - 1) * (weights > 0))
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The Jacobian is diag(g) - g gᵀ / Σ g, where g_j = α_j^(2 - α) if α_j > 0, and else 0."""
        (slopes,) = ctx.saved_tensors  # [..., S]
        # Σ g is at least Σ α = 1, but for a row masked whole, where it is 0.
        total = slopes.sum(dim=-1, keepdim=True).clamp(min=1)  # [..., 1]
        mean = (slopes * gradient).sum(dim=-1, keepdim=True) / total  # [..., 1]
        return slopes * (gradient - mean), None, None


def _sparsemax_threshold(scores: Tensor) -> Tensor:
    """The λ [..., 1] with Σ max(e_j - λ, 0) = 1."""
    ranked, counts = _rank(scores)  # [..., S], [S]
    thresholds = (ranked.cumsum(dim=-1) - 1) / counts  # [..., S]: λ, were the first k to have weight
    return _last(thresholds, ranked > thresholds)


def _entmax15_threshold(scores: Tensor) -> Tensor:
    """The λ [..., 1] with Σ max(e_j - λ, 0)² = 1."""
    ranked, counts = _rank(scores)  # [..., S], [S]
    mean = ranked.cumsum(dim=-1) / counts  # [..., S], of the first k
    spread = ranked.square().cumsum(dim=-1) / counts - mean.square()  # [..., S]: their variance
    thresholds = mean - (1 / counts - spread).clamp(min=0).sqrt()  # [..., S]: λ, as above
    return _last(thresholds, ranked >= thresholds)


_THRESHOLDS = {1: _sparsemax_threshold, 2: _entmax15_threshold}


def _rank(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [..., S], largest first, and how many they are so far, 1 … S."""
    ranked = scores.sort(dim=-1, descending=True).values
    return ranked, torch.arange(1, scores.size(-1) + 1, dtype=scores.dtype, device=scores.device)


def _last(thresholds: Tensor, supported: Tensor) -> Tensor:
    """The threshold [..., 1] of the last position that is supported [..., S], all before it being so."""
    last = supported.sum(dim=-1, keepdim=True) - 1  # [..., 1]
    return thresholds.gather(-1, last.clamp(min=0))  # NaN supports nothing, and has to come out as NaN


SOFTMAX: Normaliser = Softmax()
"""What attention is normalised with unless it is told otherwise."""


def widened(scores: Tensor) -> Tensor:
    """Scores in fp32 at least, so that ± 10⁴ stays finite whatever they were computed in."""
    return scores.double() if scores.dtype.itemsize == 8 else scores.float()
