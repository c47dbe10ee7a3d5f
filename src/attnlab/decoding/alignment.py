"""Alignment of decoded targets with their sources, by models whose alignment depends on the whole target."""

from __future__ import annotations

from typing import Any

import torch

from attnlab.nn.seq2seq import TranslationModel, select
from attnlab.types import EOS, PAD, SOS, Batch, Hypotheses


@torch.no_grad()
def with_posterior_weights(
    model: TranslationModel, batch: Batch, hypotheses: Hypotheses, encoded: tuple[Any, Any] | None = None
) -> Hypotheses:
    """Replace the attention weights of the steps of a search by those of whole targets.

    `encoded` is the result of `model.encode(batch)`, if it was computed before.
    """
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
