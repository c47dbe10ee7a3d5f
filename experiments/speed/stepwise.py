"""Step-by-step decoding, the reference for every faster way to process a whole target."""

import torch
from torch import Tensor

from attnlab.nn.seq2seq import TranslationModel
from attnlab.types import EOS, Batch


def stepwise(network: TranslationModel, batch: Batch, forced: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Decode whole targets with the network's single step, one token at a time.

    The keys are projected once; everything else, including the product with the vocabulary, is computed at
    each step for every sentence, padding or not.

    Args:
        network: whose `step` is called T times.
        batch: the batch with sources and `inputs` [B, T].
        forced: as in `TranslationModel.decode`; None for teacher forcing at every step.

    Returns:
        Logits [B, T, V] and weights [B, T, S].
    """
    encoded, state = network.encode(batch)
    prediction = batch.inputs[:, :1]  # [B, 1]; the first token is SOS for any `forced`
    logits, weights = [], []
    for i, reference in enumerate(torch.split(batch.inputs, 1, dim=1)):
        tokens = reference if forced is None else torch.where(forced[:, i : i + 1], reference, prediction)
        step_logits, step_weights, state = network.step(tokens, state, encoded)  # [B, 1, V], [B, 1, S]
        prediction = EOS + step_logits[..., EOS:].detach().argmax(dim=-1)  # [B, 1]: neither PAD nor SOS
        logits.append(step_logits)
        weights.append(step_weights)
    return torch.cat(logits, dim=1), torch.cat(weights, dim=1)
