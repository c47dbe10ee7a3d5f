"""Types shared by all packages, and the glossary of shapes.

Sizes
    B batch · S source length · T target length · E embedding · D memory size · H decoder hidden size ·
    A attention size · V vocabulary · L layers · K beam size · Q queries per sentence

Tensors
    A mask is **True at real tokens**. Tokens are int64, with the ids below for the special ones. A target is
    stored as SOS y_1 … y_n EOS. The decoder reads all of it except the last token and predicts all of it
    except the first, so T = n + 1 predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

PAD, SOS, EOS, UNK = 0, 1, 2, 3
"""Ids of the special tokens in every vocabulary. UNK is missing from a closed vocabulary."""


class Batch(NamedTuple):
    """Sentence pairs, padded to the longest of the batch."""

    source: Tensor  # [B, S] int64
    source_lengths: Tensor  # [B] int64, always on the CPU, as pack_padded_sequence requires
    target: Tensor  # [B, T + 1] int64: SOS, the tokens, EOS, padding
    indices: Tensor  # [B] int64: position of each pair in its split
    copy_ids: Tensor | None = None  # [B, S] int64: the target id that copying each source token produces

    @property
    def source_mask(self) -> Tensor:
        """Mask of the source [B, S], True at real tokens."""
        positions = torch.arange(self.source.size(1), device=self.source.device)  # [S]
        return positions < self.source_lengths.to(self.source.device)[:, None]  # [B, S]

    @property
    def inputs(self) -> Tensor:
        """Input tokens of a teacher-forced decoder [B, T], SOS first."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Tensor:
        """Tokens to predict [B, T], EOS last, PAD where there is nothing to predict."""
        return self.target[:, 1:]

    @property
    def source_text(self) -> Tensor:
        """Mask [B, S], True at tokens of the text: False at EOS, if sources end with it."""
        return self.source_mask & (self.source != EOS)

    @property
    def target_text(self) -> Tensor:
        """Mask [B, T], True at labels of the text: False at EOS."""
        return (self.labels != PAD) & (self.labels != EOS)

    def select(self, rows: Tensor) -> Batch:
        """Return the sentences of rows [M] int64, which may repeat."""
        return map_tensors(lambda part: part[rows.to(part.device)], self)  # type: ignore[no-any-return]

    def to(self, device: torch.device | str, **options: Any) -> Batch:
        """Move all tensors except the lengths to a device."""
        lengths = self.source_lengths
        return map_tensors(  # type: ignore[no-any-return]
            lambda part: part if part is lengths else part.to(device, **options), self
        )

    def pin_memory(self) -> Batch:
        """Copy to page-locked memory, from which transfers to a GPU are faster."""
        return Batch(*(None if tensor is None else tensor.pin_memory() for tensor in self))  # type: ignore[arg-type]


class Memory(NamedTuple):
    """The vectors to attend to: a sentence's encoder states, or any other set of B × S vectors."""

    states: Tensor  # [B, S, D]
    mask: Tensor  # [B, S] bool, True at real positions
    hidden: Tensor | None = None  # [B, L, D]: final hidden state of each layer, directions concatenated
    cell: Tensor | None = None  # [B, L, D]: final cell state of each layer of an LSTM


class Hypotheses(NamedTuple):
    """Search results for each sentence, best hypothesis first."""

    tokens: list[list[list[int]]]  # B × K × length, without SOS and EOS
    scores: list[list[float]]  # B × K: log-probability, length-normalised
    weights: list[list[Tensor]]  # B × K × [length + 1, S]: attention weights of every token and of EOS
    log_p: list[list[list[float]]]  # B × K × (length + 1): log-probability of every token and of EOS


def map_tensors(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """Apply a function to every tensor, of any shape, of a nested tuple or list; other leaves stay."""
    if isinstance(tree, Tensor):
        return function(tree)
    if not isinstance(tree, (tuple, list)):
        return tree
    parts = [map_tensors(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
