"""Log-probabilities of given targets.

B, T as in `attnlab.types`
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel
from attnlab.types import PAD, Batch


@torch.no_grad()
def score(model: TranslationModel, batch: Batch) -> Tensor:
    """Compute log p(y_t | y_1 … y_{t-1}, x) of the targets of a batch, token by token.

    Returns:
        [B, T] fp32: one value for each label, EOS included, and 0 at padding. The sum over T is log p(y | x).
    """
    labels = batch.labels  # [B, T]
    real = labels != PAD  # [B, T]
    logits = model.logits(model(batch), batch.copy_ids, real)  # [N, V], N: real labels
    log_p = logits.float().log_softmax(dim=-1)  # [N, V]
    chosen = log_p.gather(-1, labels[real][:, None])[:, 0]  # [N]
    return torch.zeros(labels.shape, device=labels.device).masked_scatter(real, chosen)
