"""Knowledge distillation: a network learns from the predictions of a trained one or of an ensemble."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel
from attnlab.types import PAD, Batch


class Distillation:
    """Word-level knowledge distillation (Kim & Rush 2016, arXiv 1606.07947, section 3.1).

    ::

        L = (1 - w) L_NLL + w L_KD,    L_KD = -1/N Σ_i Σ_v q(v | y_<i, x) log p(v | y_<i, x)

    N counts the target tokens, q is the distribution of the teacher and p that of the network. The teacher
    reads the reference at every position. It is not a part of the network: it is neither trained nor saved.

    Args:
        teacher: model in evaluation mode, with the vocabularies of the network.
        weight: w.
    """

    def __init__(self, teacher: TranslationModel, weight: float) -> None:
        self.teacher = teacher
        self.weight = weight

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Compute L_KD [] of the logits [N, V] of the N target tokens of a batch without padding."""
        real = batch.labels != PAD  # [B, T]
        with torch.no_grad():
            taught = self.teacher.logits(self.teacher(batch), batch.copy_ids, real)  # [N, V]
            q = taught.float().softmax(dim=-1)  # [N, V]
        return -(q * logits.float().log_softmax(dim=-1)).sum() / len(logits)
