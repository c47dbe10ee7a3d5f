"""Rank correlation of attention weights with other scores, row by row.

N rows · S as in `attnlab.types`
"""

import torch
from torch import Tensor

MAX_PAIRS = 2**22
"""Maximum number of pairs of tokens that are compared together."""


def kendall_tau(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return Kendall's τ-b of two scores over the real tokens of each row, [N] float64.

    ::

        τ_b = Σ_{i<j} sign(x_i - x_j) sign(y_i - y_j) / √(pairs with x_i ≠ x_j · pairs with y_i ≠ y_j)

    NaN where all scores of a row are equal, as with uniform weights or a single token.

    Args:
        x: [N, S].
        y: [N, S].
        mask: [N, S], True at real tokens.
    """
    rows = max(1, MAX_PAIRS // mask.size(1) ** 2)
    parts = zip(*(torch.split(part, rows) for part in (x, y, mask)), strict=True)
    return torch.cat([_tau(*part) for part in parts])


def _tau(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Compute all pairs of the rows [N, S] at once; arguments and result of `kendall_tau`."""
    pairs = (mask[:, :, None] & mask[:, None]).double().triu(diagonal=1)  # [N, S, S]
    first = (x[:, :, None] - x[:, None]).sign().double() * pairs  # [N, S, S]
    second = (y[:, :, None] - y[:, None]).sign().double() * pairs
    untied = first.abs().sum((1, 2)) * second.abs().sum((1, 2))  # [N]
    return (first * second).sum((1, 2)) / untied.sqrt()


def top_agreement(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Return the probability that the largest x and the largest y are at the same token, [N] float64.

    Ties are broken at random: with k equal largest x, one of which has the only largest y, it is 1 / k.
    Arguments are those of `kendall_tau`.
    """
    first, second = (
        (scores == scores.masked_fill(~mask, -float("inf")).amax(dim=-1, keepdim=True)) & mask
        for scores in (x, y)
    )  # [N, S]
    return (first & second).sum(dim=-1).double() / (first.sum(dim=-1) * second.sum(dim=-1))
