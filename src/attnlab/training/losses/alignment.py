"""Loss term of guided alignment."""

from torch import Tensor

from attnlab.errors import UserError
from attnlab.settings import NotNegative
from attnlab.training.losses.base import LossTerm, Outputs, Trained
from attnlab.types import PAD, Batch

FLOOR = 1e-10  # Lower bound of an attention weight, so that its logarithm is finite


class GuidedAlignment(LossTerm):
    """Guided alignment: cross-entropy of the attention weights against word alignments (Chen et al. 2016).

    ::

        -1/N Σ_i Σ_j g_ij log α_ij,    g_ij = a_ij / Σ_k a_ik

    The alignment a of a target token (arXiv 1607.01628) is spread evenly over the source tokens that it is
    linked to. Tokens without a link add nothing, and N counts all target tokens. A weight below 1e-10 counts
    as 1e-10, without a gradient.

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
        alignment = self.gold_alignment(batch, "train")  # [B, T, S], True at linked positions
        shares = alignment / alignment.sum(dim=-1, keepdim=True).clamp(min=1)  # [B, T, S]
        entropies = -(shares * outputs.weights.float().clamp(min=FLOOR).log()).sum(dim=-1)  # [B, T]
        return entropies.sum() / (batch.labels != PAD).sum().clamp(min=1)
