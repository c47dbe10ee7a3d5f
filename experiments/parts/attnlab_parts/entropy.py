"""Entropy of the attention weights."""

from torch import Tensor

from attnlab.settings import NotNegative
from attnlab.training.losses.base import LossTerm, Outputs
from attnlab.types import PAD, Batch

FLOOR = 1e-10
"""Lower bound of an attention weight, so that its logarithm is finite."""


class Entropy(LossTerm):
    """Entropy of the attention weights, with a weight that grows during training: L + λ p² H.

    p is the share of the training that is done: an attention that is sharp too early does not find its
    alignment. A network with small cross-entropy can still spread its weights over several positions, which a
    mechanism with state repeats at every step. With several heads the weights are their mean, whose entropy
    does not tell heads with a position each from heads that all read a mixture of these positions.

    Args:
        weight: weight λ at the end of the training.
    """

    def __init__(self, *, weight: NotNegative = 0.05) -> None:
        super().__init__(weight=1.0)
        self.last_weight = weight

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        return self.last_weight * progress**2 * entropy_loss(outputs.weights, batch.labels != PAD)


def entropy_loss(weights: Tensor, real: Tensor) -> Tensor:
    """Compute the mean entropy of attention weights, -1/N Σ_i Σ_j α_ij log α_ij, in nats.

    Args:
        weights: α [B, T, S].
        real: True at target tokens, False at padding, [B, T] bool.

    Returns:
        The loss [].
    """
    weights = weights.float()
    entropies = -(weights * weights.clamp(min=FLOOR).log()).sum(dim=-1)  # [B, T]
    return (entropies * real).sum() / real.sum().clamp(min=1)
