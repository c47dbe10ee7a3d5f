"""Guided alignment: supervision of the attention weights by given word alignments."""

from __future__ import annotations

from torch import Tensor

FLOOR = 1e-10
"""Lower bound of a weight, so that its logarithm is finite."""


def guided_alignment_loss(weights: Tensor, alignment: Tensor, real: Tensor) -> Tensor:
    """Compute the cross-entropy of attention weights against alignments (Chen et al. 2016, arXiv 1607.01628).

    ::

        -1/N Σ_i Σ_j g_ij log α_ij,    g_ij = a_ij / Σ_k a_ik

    The alignment a of a target token is spread evenly over the source tokens that it is linked to. Tokens
    without a link add nothing. N counts all target tokens, as in the cross-entropy: the losses of batches,
    weighted by their target tokens, add up to that of one large batch.

    Args:
        weights: attention weights α [B, T, S].
        alignment: a [B, T, S] bool, True at linked positions.
        real: True at target tokens, False at padding, [B, T] bool.

    Returns:
        The loss []; 0 if there are no links.
    """
    links = alignment.sum(dim=-1)  # [B, T]
    shares = alignment / links.clamp(min=1)[..., None]  # [B, T, S]
    entropies = -(shares * weights.float().clamp(min=FLOOR).log()).sum(dim=-1)  # [B, T]
    return entropies.sum() / real.sum().clamp(min=1)
