"""Training losses beyond the cross-entropy: knowledge distillation, guided alignment and entropy."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel
from attnlab.types import PAD, Batch

FLOOR = 1e-10
"""Lower bound of an attention weight, so that its logarithm is finite."""


class Losses(NamedTuple):
    """Losses of a batch, [] each: means over its target tokens."""

    total: Tensor  # the loss that is minimised
    logged: dict[str, Tensor]  # its parts, by the name under which they are logged
    tokens: int  # number of target tokens without padding


@dataclass(frozen=True)
class Distillation:
    """Word-level knowledge distillation (Kim & Rush 2016, arXiv 1606.07947, section 3.1).

    ::

        L = (1 - w) L_NLL + w L_KD,    L_KD = -1/N Σ_i Σ_v q(v | y_<i, x) log p(v | y_<i, x)

    N counts the target tokens, q is the distribution of the teacher and p that of the network. The teacher
    reads the reference at every position. It is not a part of the network: it is neither trained nor saved.
    """

    teacher: TranslationModel  # in evaluation mode, with the vocabularies of the network
    weight: float  # w

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Compute L_KD [] of the logits [N, V] of the N target tokens of a batch without padding."""
        real = batch.labels != PAD  # [B, T]
        with torch.no_grad():
            taught = self.teacher.logits(self.teacher(batch), batch.copy_ids, real)  # [N, V]
            q = taught.float().softmax(dim=-1)  # [N, V]
        return -(q * logits.float().log_softmax(dim=-1)).sum() / len(logits)


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


def entropy_loss(weights: Tensor, real: Tensor) -> Tensor:
    """Compute the mean entropy of attention weights, -1/N Σ_i Σ_j α_ij log α_ij, in nats.

    Its weight grows during training, since an attention that is sharp too early does not find its alignment.
    A network with small cross-entropy can still spread its weights over several positions, which a mechanism
    with state repeats at every step. With several heads the weights are their mean, whose entropy does not
    tell heads with a position each from heads that all read a mixture of these positions.

    Args:
        weights: α [B, T, S].
        real: True at target tokens, False at padding, [B, T] bool.

    Returns:
        The loss [].
    """
    weights = weights.float()
    entropies = -(weights * weights.clamp(min=FLOOR).log()).sum(dim=-1)  # [B, T]
    return (entropies * real).sum() / real.sum().clamp(min=1)
