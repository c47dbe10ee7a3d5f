"""Loss term of guided alignment."""

from torch import Tensor

from attnlab.errors import UserError
from attnlab.settings import NotNegative
from attnlab.training.losses.base import LossTerm, Outputs, Trained
from attnlab.types import PAD, Batch

FLOOR = 1e-10
"""Lower bound of an attention weight, so that its logarithm is finite."""


class GuidedAlignment(LossTerm):
    """Guided alignment: trains the attention weights towards word alignments (Chen et al. 2016).

    Args:
        weight: weight λ of the term in the loss, which needs word alignments of the training data.
    """

    def __init__(self, *, weight: NotNegative = 0.5) -> None:
        super().__init__(weight=weight)

    def prepare(self, module: Trained) -> None:
        if not any(module.vocabularies.gold_alignment(pair) for pair in module.data.pairs("train")):
            raise UserError(
                f"loss.terms.alignment.weight={self.weight} needs word alignments of the training data: set "
                "data.alignments_path"
            )
        self.gold_alignment = module.gold_alignment

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        if not outputs.weights.requires_grad:
            raise UserError("loss.terms.alignment: this attention has no weights to train: use another one")
        return guided_alignment_loss(
            outputs.weights, self.gold_alignment(batch, "train"), batch.labels != PAD
        )


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
