"""Explained predictions: one row of a batch for each target position.

N units · B, T, S, E, V as in `attnlab.types`

A unit is a target position t of a sentence. Its explained token ŷ is the most probable one given the source
and the reference up to t - 1, and the explained value is f = log p(ŷ | y_1 … y_{t-1}, x). Every unit is a
row with its own copy of the source, so that one pass computes f, or its gradient, for all units.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from attnlab.nn.seq2seq import Seq2Seq
from attnlab.types import PAD, Batch

MAX_ROWS = 512  # Maximum number of rows of one pass


class Units(NamedTuple):
    """Explained predictions of the sentences of a batch, longest prefix first."""

    batch: Batch  # N rows: source, and target up to the explained position; `indices` are those of sentences
    positions: Tensor  # [N] int64: explained position t of each row, from 0
    tokens: Tensor  # [N] int64: explained token ŷ
    log_p: Tensor  # [N] fp32: f without any change
    weights: Tensor  # [N, S] fp32: attention weights at t

    @property
    def mask(self) -> Tensor:
        """Mask of the sources [N, S], True at real tokens."""
        return self.batch.source_mask

    def select(self, rows: Tensor) -> Units:
        """Return the units at these rows [M] int64, which may repeat."""
        selected = self.batch.select(rows)
        longest = int(self.positions[rows].max()) + 2
        selected = selected._replace(target=selected.target[:, :longest])
        return Units(selected, self.positions[rows], self.tokens[rows], self.log_p[rows], self.weights[rows])

    def chunks(self) -> Iterator[Units]:
        """Split the units into parts of at most `MAX_ROWS` rows."""
        for rows in torch.split(torch.arange(len(self.tokens), device=self.tokens.device), MAX_ROWS):
            yield self.select(rows)


@torch.no_grad()
def units_of(network: Seq2Seq, batch: Batch, *, of_targets: bool = False) -> Units:
    """Return the units of a batch.

    Args:
        network: in evaluation mode.
        batch: B sentences.
        of_targets: explain the tokens of the targets, EOS included; by default the most probable token of
            each target position except EOS.
    """
    decoded = network(batch)
    explained = batch.labels != PAD if of_targets else batch.target_text  # [B, T]
    rows, positions = explained.nonzero(as_tuple=True)
    order = positions.argsort(descending=True, stable=True)
    rows, positions = rows[order], positions[order]
    logits = network.logits(decoded, batch.copy_ids, explained)[order]  # [N, V]
    log_p, tokens = logits.float().log_softmax(dim=-1).max(dim=-1)  # [N]
    if of_targets:
        tokens = batch.labels[rows, positions]
        log_p = logits.float().log_softmax(dim=-1).gather(-1, tokens[:, None])[:, 0]
    columns = torch.arange(batch.target.size(1), device=batch.target.device)  # [T + 1]
    target = batch.target[rows].where(columns <= positions[:, None] + 1, PAD)  # [N, T + 1]
    expanded = batch.select(rows)._replace(target=target)
    return Units(expanded, positions, tokens, log_p, decoded.weights[rows, positions].float())


def log_probability(network: Seq2Seq, units: Units, embedded: Tensor) -> Tensor:
    """Return f [N] of units whose sources are embedded as [N, S, E]."""
    encoded, state = network.encode_embedded(embedded, units.batch)
    decoded = network.decode(encoded, state, units.batch)
    steps = torch.arange(decoded.weights.size(1), device=units.positions.device)  # [T]
    explained = steps == units.positions[:, None]  # [N, T]
    logits = network.logits(decoded, units.batch.copy_ids, explained)  # [N, V]
    return logits.float().log_softmax(dim=-1).gather(-1, units.tokens[:, None])[:, 0]


@contextmanager
def frozen(network: Seq2Seq) -> Iterator[None]:
    """Compute no gradients of parameters inside the block, which saves half of the time."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
