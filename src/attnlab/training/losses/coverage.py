"""Loss term of repeated attention."""

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.settings import NotNegative
from attnlab.training.losses.base import LossTerm, Outputs
from attnlab.types import PAD, Batch


class Coverage(LossTerm):
    """Coverage loss (See, Liu & Manning 2017, arXiv 1704.04368, equation 12).

    It penalises attending again to positions that have been attended to. It needs the attention weights only,
    so any mechanism can be trained with it.

    Args:
        weight: weight λ of the term in the loss (1 in the paper).
    """

    def __init__(self, *, weight: NotNegative = 1.0) -> None:
        super().__init__(weight=weight)

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        return coverage_loss(outputs.weights, batch.labels != PAD)


def coverage_loss(weights: Tensor, real: Tensor) -> Tensor:
    """Return the coverage loss, averaged over the real target positions.

    ::

        T_t = Σ_j min(α_tj, c_tj)        c_t = Σ_{t' < t} α_t'

    Args:
        weights: α [B, T, S], 0 at padding.
        real: [B, T], True at real target positions and False at padding.

    Returns:
        A scalar; 0 if there is no real position.
    """
    coverage = F.pad(weights.cumsum(dim=1)[:, :-1], (0, 0, 1, 0))  # [B, T, S]: c_t
    repeated = torch.minimum(weights, coverage).sum(dim=-1)  # [B, T]
    return (repeated * real).sum() / real.sum().clamp(min=1)
