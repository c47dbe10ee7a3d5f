"""The straightforward loop: what every faster way through a whole target must equal."""

from __future__ import annotations

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel
from attnlab.types import Batch


def stepwise(network: TranslationModel, batch: Batch, forced: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Decode known targets with the network's single step, a token at a time.

    The keys are projected once; everything else, the product with the vocabulary among it, is done at each
    step for every sentence, padding or not.

    Args:
        network: whose `step` is taken T times.
        batch: whose sources and `inputs` [B, T] are read.
        forced: as `Seq2Seq.forward` has it; None for teacher forcing throughout.

    Returns:
        Logits [B, T, V] and weights [B, T, S].
    """
    encoded, state = network.encode(batch)
    guess = batch.inputs[:, :1]  # [B, 1], so that SOS is read whatever `forced` says
    logits, weights = [], []
    for i, tokens in enumerate(torch.split(batch.inputs, 1, dim=1)):
        read = tokens if forced is None else torch.where(forced[:, i : i + 1], tokens, guess)  # [B, 1]
        scores, attended, state = network.step(read, state, encoded)
        guess = scores.detach().argmax(dim=-1)  # [B, 1]
        logits.append(scores)
        weights.append(attended)
    return torch.cat(logits, dim=1), torch.cat(weights, dim=1)
