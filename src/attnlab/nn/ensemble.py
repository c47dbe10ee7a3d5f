"""Ensembles: several models that predict with the mean of their probabilities."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.seq2seq import Decoded, TranslationModel
from attnlab.types import Batch


class Ensemble(TranslationModel):
    """Ensemble of N models: p(y_i | …) = 1/N Σ_n p_n(y_i | …) at every step, over the same vocabularies.

    Members that do not copy give source words outside the vocabulary the probability 0. An ensemble costs N
    times as much as one model. The attention weights are the mean of the members'. It is not meant for
    training.
    """

    def __init__(self, members: Sequence[TranslationModel]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.latent_alignment = any(member.latent_alignment for member in members)

    def __iter__(self) -> Iterator[TranslationModel]:
        for member in self.members:
            assert isinstance(member, TranslationModel)
            yield member

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        encoded, states = zip(*(member.encode(batch) for member in self), strict=True)
        return encoded, states

    def step(self, tokens: Tensor, state: Any, encoded: Any) -> tuple[Tensor, Tensor, Any]:
        members = zip(self, state, encoded, strict=True)
        steps = [member.step(tokens, current, sources) for member, current, sources in members]
        logits, weights, states = zip(*steps, strict=True)
        return _log_mean(logits), torch.stack(weights).mean(dim=0), states

    def reorder(self, state: Any, sentences: Tensor, hypotheses: Tensor) -> Any:
        members = zip(self, state, strict=True)
        return tuple(member.reorder(current, sentences, hypotheses) for member, current in members)

    def decode(self, encoded: Any, state: Any, batch: Batch, forced: Tensor | None = None) -> Decoded:
        members = zip(self, encoded, state, strict=True)
        decoded = [member.decode(sources, first, batch, forced) for member, sources, first in members]
        logits = [member.logits(output, batch.copy_ids) for member, output in zip(self, decoded, strict=True)]
        return Decoded(_log_mean(logits), torch.stack([output.weights for output in decoded]).mean(dim=0))

    def logits(self, decoded: Decoded, copy_ids: Tensor | None, where: Tensor | None = None) -> Tensor:
        return decoded.features if where is None else decoded.features[where]


def _log_mean(logits: Sequence[Tensor]) -> Tensor:
    """Compute the log of the mean of the members' probabilities: [..., V], or [..., V + S] if one copies."""
    size = max(member.size(-1) for member in logits)
    logs = torch.stack(
        [
            F.pad(member.float().log_softmax(dim=-1), (0, size - member.size(-1)), value=-math.inf)
            for member in logits
        ]
    )  # [N, ..., V]
    return logs.logsumexp(dim=0) - math.log(len(logits))
