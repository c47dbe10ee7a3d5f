"""Loss term of repeated attention."""

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.settings import NotNegative
from attnlab.training.losses.base import LossTerm, Outputs
from attnlab.types import PAD, Batch


class Coverage(LossTerm):
    """Coverage loss (See, Liu & Manning 2017, arXiv 1704.04368, equation 12).

    ::

        T_t = Σ_j min(α_tj, c_tj)        c_t = Σ_{t' < t} α_t'

    It penalises attending again to positions that have been attended to, and is averaged over the target
    positions. Any mechanism can be trained with it.

    Args:
        weight: weight λ of the term in the loss (1 in the paper).
    """

    def __init__(self, *, weight: NotNegative = 1.0) -> None:
        super().__init__(weight=weight)

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        weights, real = outputs.weights, batch.labels != PAD  # [B, T, S], [B, T]
        coverage = F.pad(weights.cumsum(dim=1)[:, :-1], (0, 0, 1, 0))  # [B, T, S]: c_t
        repeated = torch.minimum(weights, coverage).sum(dim=-1)  # [B, T]
        return (repeated * real).sum() / real.sum().clamp(min=1)
