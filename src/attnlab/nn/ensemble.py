"""Several networks as one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.seq2seq import Decoded, Seq2Seq
from attnlab.types import Batch


class Ensemble(nn.Module):
    """p(y_i | …) = 1/N Σ_n p_n(y_i | …), step by step, over the same vocabularies.

    To search and to scoring it looks like one `Seq2Seq`; it costs N times as much. The weights are the
    members' mean. It is not for training.

    Args:
        members: networks in evaluation mode.
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def __iter__(self) -> Iterator[Seq2Seq]:
        for member in self.members:
            assert isinstance(member, Seq2Seq)
            yield member

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        """What each member has read, and its first state."""
        encoded, states = zip(*(member.encode(batch) for member in self), strict=True)
        return encoded, states

    def step(self, tokens: Tensor, state: Any, encoded: Any) -> tuple[Tensor, Tensor, Any]:
        """Read one token a hypothesis: log-probabilities [B, Q, V], weights [B, Q, S], the new state."""
        steps = [member.step(tokens, *own) for member, *own in zip(self, state, encoded, strict=True)]
        logits, weights, states = zip(*steps, strict=True)
        return _mixed(logits), torch.stack(weights).mean(dim=0), states

    def forward(self, batch: Batch, forced: Tensor | None = None) -> Decoded:
        """Decode targets whose tokens are known: log-probabilities [B, T, V] as features, and weights."""
        decoded = [member(batch, forced) for member in self]
        logits = [member.logits(own, batch.copy_ids) for member, own in zip(self, decoded, strict=True)]
        return Decoded(_mixed(logits), torch.stack([own.weights for own in decoded]).mean(dim=0))

    def logits(self, decoded: Decoded, copy_ids: Tensor | None, where: Tensor | None = None) -> Tensor:
        """The log-probabilities of what was decoded: [B, T, V], or [N, V] of what `where` [B, T] picks."""
        return decoded.features if where is None else decoded.features[where]


def _mixed(logits: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of the members' probabilities [..., V]."""
    logs = torch.stack([member.float().log_softmax(dim=-1) for member in logits])  # [N, ..., V]
    return logs.logsumexp(dim=0) - math.log(len(logits))
