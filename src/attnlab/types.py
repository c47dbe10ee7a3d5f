"""What is handed from one part to the next, and the glossary of shapes.

Sizes
    B batch · S source length · T target length · E embedding · D memory size · H decoder state ·
    A attention size · V vocabulary · L layers · K beam

Tensors
    A mask is **True where there is a real token**. Tokens are int64, with the ids below for the special
    ones. A target is written SOS y_1 … y_n EOS; a decoder reads all of it but the last token and predicts
    all of it but the first, so T counts n + 1 predictions.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

PAD, SOS, EOS, UNK = 0, 1, 2, 3
"""The ids of the special tokens, in every vocabulary. UNK is absent from a closed vocabulary."""

ROUND = 8
"""What counts of sentences are rounded up to multiples of."""


class Batch(NamedTuple):
    """Sentence pairs, padded to the longest of the batch."""

    source: Tensor  # [B, S] int64
    source_lengths: Tensor  # [B] int64, always on the CPU: packing a padded sequence demands it
    target: Tensor  # [B, T + 1] int64: SOS, the tokens, EOS, padding
    indices: Tensor  # [B] int64: the place of each pair in its split
    copy_ids: Tensor | None = None  # [B, S] int64: target id of each source token if copied; see `nn.readout`

    @property
    def source_mask(self) -> Tensor:
        """[B, S], True at real tokens."""
        positions = torch.arange(self.source.size(1), device=self.source.device)  # [S]
        return positions < self.source_lengths.to(self.source.device)[:, None]  # [B, S]

    @property
    def inputs(self) -> Tensor:
        """[B, T]: what a teacher-forced decoder reads, SOS first."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Tensor:
        """[B, T]: what it must predict, EOS last, PAD where there is nothing to predict."""
        return self.target[:, 1:]

    @property
    def counts(self) -> list[int]:
        """For each of T positions, how many sentences from the first on hold all that have a label there.

        As few as can be where the sentences come longest target first, but for rounding up: on a CPU products
        are compiled for each number of rows. On a GPU always all of them, since to look is to wait for it.
        """
        size, steps = self.labels.shape
        if self.labels.device.type != "cpu":
            return [size] * steps
        numbers = torch.arange(1, size + 1)[:, None]  # [B, 1]
        last = (numbers * (self.labels != PAD)).amax(dim=0)  # [T]
        return [min(size, math.ceil(max(1, count) / ROUND) * ROUND) for count in last.tolist()]

    @property
    def source_text(self) -> Tensor:
        """[B, S], True at tokens of the text: not at EOS, where sources end with one."""
        return self.source_mask & (self.source != EOS)

    @property
    def target_text(self) -> Tensor:
        """[B, T], True at labels of the text: not at EOS."""
        return (self.labels != PAD) & (self.labels != EOS)

    def to(self, device: torch.device | str, **options: Any) -> Batch:
        """Move to a device, all but the lengths."""
        return Batch(
            source=self.source.to(device, **options),
            source_lengths=self.source_lengths,
            target=self.target.to(device, **options),
            indices=self.indices.to(device, **options),
            copy_ids=None if self.copy_ids is None else self.copy_ids.to(device, **options),
        )

    def pin_memory(self) -> Batch:
        """Copy to page-locked memory, from where a GPU reads faster."""
        return Batch(*(None if tensor is None else tensor.pin_memory() for tensor in self))  # type: ignore[arg-type]


class Memory(NamedTuple):
    """What is attended to: a sentence's encoder states, or any other set of B × S vectors."""

    states: Tensor  # [B, S, D]
    mask: Tensor  # [B, S] bool, True at real positions
    hidden: Tensor | None = None  # [B, L, D]: each layer's final state, directions side by side
    cell: Tensor | None = None  # [B, L, D]: the same of an LSTM's cells


class Hypotheses(NamedTuple):
    """What a search found for each sentence, best first."""

    tokens: list[list[list[int]]]  # B × K × length, without SOS and EOS
    scores: list[list[float]]  # B × K: log-probability, normalised as the search was told to
    weights: list[list[Tensor]]  # B × K × [length + 1, S]: attention for every token and for EOS
