"""Normalisers: from scores to weights that are exactly 0 wherever there is no token."""

from __future__ import annotations

from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """α_j = exp(e_j) / Σ_k exp(e_k) over the real positions.

    Computed in fp32 whatever comes in, so that scores of ± 10⁴ stay finite in half precision.

    Args:
        scores: [..., S].
        mask: bool, broadcastable to [..., S], True at real positions.

    Returns:
        [..., S] in fp32 or wider: a distribution over the real positions, exactly 0 elsewhere, and all
        zeros where a row has no real position.
    """
    scores = scores.double() if scores.dtype.itemsize == 8 else scores.float()
    # The lowest finite number, not -inf: a row masked whole then gives a uniform row, not NaN,
    # and the product with the mask makes it the zeros it should be.
    scores = scores.masked_fill(~mask, -3.0e38)  # [..., S]
    return scores.softmax(dim=-1) * mask  # [..., S]
