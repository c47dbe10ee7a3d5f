"""Log-probabilities and alignments of whole targets.

B, T, S as in `attnlab.types`
"""

from typing import Any

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses


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
    return chosen.new_zeros(labels.shape).masked_scatter(real, chosen)


@torch.no_grad()
def with_posterior_weights(
    model: TranslationModel, batch: Batch, hypotheses: Hypotheses, encoded: tuple[Any, Any] | None = None
) -> Hypotheses:
    """Replace the attention weights of the steps of a search by those of whole targets.

    `encoded` is the result of `model.encode(batch)`, if it was computed before.
    """
    if not any(hypotheses.tokens):
        return hypotheses
    sources, state = model.encode(batch) if encoded is None else encoded
    counts = torch.tensor([len(tokens) for tokens in hypotheses.tokens])
    rows = torch.arange(len(counts)).repeat_interleave(counts).to(batch.source.device)  # [N]
    targets = [torch.tensor([SOS, *ids, EOS]) for tokens in hypotheses.tokens for ids in tokens]
    target = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=PAD)
    repeated = batch.select(rows)._replace(target=target.to(batch.source.device))
    decoded = model.decode(select(sources, rows), select(state, rows), repeated)
    aligned = iter(decoded.weights.float().cpu())  # N of [T, S]
    lengths = batch.source_lengths.tolist()
    return hypotheses._replace(
        weights=[
            [next(aligned)[: len(ids) + 1, :length] for ids in tokens]
            for tokens, length in zip(hypotheses.tokens, lengths, strict=True)
        ]
    )
