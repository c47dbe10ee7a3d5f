"""R-drop (Liang et al., 2021, arXiv 2106.14448): a loss term for two passes with different dropout.

attnlab train experiment=g2p … '+loss.terms.rdrop={_target_: rdrop.RDrop, weight: 1}'
"""

import torch.nn.functional as F
from torch import Tensor

from attnlab.training.losses.base import LossTerm, Outputs, Trained
from attnlab.types import PAD, Batch


class RDrop(LossTerm):
    """Symmetric divergence (KL(p, q) + KL(q, p)) / 2 of the predictions p and q of two passes, per token."""

    def __init__(self, *, weight: float = 1.0) -> None:
        super().__init__(weight=weight)

    def prepare(self, module: Trained) -> None:
        self.network = module.network

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        real = batch.labels != PAD  # [B, T]
        p = outputs.log_probabilities  # [N, V]
        q = self.network.logits(self.network(batch), batch.copy_ids, real).float().log_softmax(dim=-1)
        divergence = F.kl_div(q, p, log_target=True, reduction="sum")
        divergence += F.kl_div(p, q, log_target=True, reduction="sum")
        return divergence / (2 * real.sum())
