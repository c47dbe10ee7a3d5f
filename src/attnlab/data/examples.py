"""Encoded pairs, and their collation to padded batches.

N pairs of a split · B pairs of a batch · S, T as in `attnlab.types`
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from attnlab.data.corpus import Pair
from attnlab.data.features import is_feature
from attnlab.data.tokenization.tokenizer import UNKNOWN
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.files.terminal import escape_control_characters
from attnlab.types import EOS, PAD, SOS, Batch

log = logging.getLogger(__name__)

Lengths = NDArray[np.int64]

OUTLIER_PAIRS, OUTLIER_FACTOR = 100, 10
"""In a split of this many pairs, a length of more than so many times the 99th percentile is reported."""

UNKNOWN_READ, UNKNOWN_EXAMPLES = 100, 3
"""The log names at most 3 different tokens, of the first 100 that are outside the vocabulary."""


@dataclass(frozen=True)
class Sequences:
    """Sequences of token ids with different lengths, stored in one array."""

    tokens: NDArray[np.int32]  # [sum of the lengths]
    offsets: NDArray[np.int64]  # [N + 1]: start of each sequence, then the end of the last

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> Sequences:
        """Concatenate N sequences of token ids."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=offsets[-1]), offsets)

    @property
    def lengths(self) -> Lengths:
        """Length of each sequence, [N]."""
        return np.diff(self.offsets)

    def row(self, index: int) -> list[int]:
        """Return the token ids of one sequence."""
        ids: list[int] = self.tokens[self.offsets[index] : self.offsets[index + 1]].tolist()
        return ids

    def padded(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the sequences at B indices.

        Returns:
            The ids [B, longest] int64, padded with PAD at the end, and the lengths [B] int64.
        """
        starts = self.offsets[np.asarray(indices)]  # [B]
        lengths = self.offsets[np.asarray(indices) + 1] - starts  # [B]
        positions = np.arange(lengths.max())  # [longest]
        real = positions < lengths[:, None]  # [B, longest]
        rows = np.full(real.shape, PAD, dtype=np.int64)  # [B, longest]
        rows[real] = self.tokens[(starts[:, None] + positions)[real]]
        return torch.from_numpy(rows), torch.from_numpy(lengths)


class Examples(Dataset[Batch]):
    """The encoded pairs of a split. Indexing with a list of B positions returns a `Batch`."""

    def __init__(self, sources: Sequences, targets: Sequences, copy_ids: Sequences | None = None) -> None:
        self.sources = sources
        self.targets = targets
        self.copy_ids = copy_ids

    def __len__(self) -> int:
        return len(self.sources.lengths)

    def __getitem__(self, indices: list[int]) -> Batch:
        source, source_lengths = self.sources.padded(indices)
        target, _ = self.targets.padded(indices)
        copy_ids = None if self.copy_ids is None else self.copy_ids.padded(indices)[0]
        return Batch(source, source_lengths, target, torch.tensor(indices), copy_ids)

    @property
    def source_lengths(self) -> Lengths:
        """S of each pair, [N]; counts the EOS if sources end with one."""
        return self.sources.lengths

    @property
    def target_lengths(self) -> Lengths:
        """T of each pair, [N]: the number of predicted tokens, EOS included and SOS not."""
        return self.targets.lengths - 1


def encode(
    pairs: Sequence[Pair],
    vocabularies: Vocabularies,
    *,
    source_eos: bool,
    max_source_length: int | None,
    max_target_length: int | None,
    with_copy_ids: bool = False,
) -> Examples:
    """Encode raw pairs as token ids. Targets become SOS … EOS.

    Args:
        max_source_length: truncate sources to this S, their EOS included; None for no limit. The EOS is kept.
        max_target_length: truncate targets to this T, their EOS included; None for no limit. The EOS is kept.
        with_copy_ids: add `Batch.copy_ids` for readouts that copy, and give target tokens outside the
            vocabulary that occur in the source the id they are copied as. Source and target tokens are
            compared as text, so both tokenizers must split it in the same way.
    """
    eos = [EOS] if source_eos else []
    source_limit, target_limit = text_limits(source_eos, max_source_length, max_target_length)
    sources = vocabularies.source.encode_all([pair.source for pair in pairs])
    targets = vocabularies.target.encode_all([pair.target for pair in pairs])
    for number, (pair, source, target) in enumerate(zip(pairs, sources, targets, strict=True), start=1):
        place = pair.origin or f"pair {number} of {len(pairs)}"
        for link in vocabularies.gold_alignment(pair) or ():
            if link[0] >= len(source) or link[1] >= len(target):
                raise UserError(
                    f"{place}, {pair.source!r}: the alignment has the link "
                    f"{link[0]}-{link[1]}, but there are {len(source)} source and {len(target)} target "
                    "tokens. Count tokens from 0, and use the tokenization of the aligner"
                )
        if not source:
            raise UserError(
                f"{place}: the source {pair.source!r} (target {pair.target!r}) has no tokens. Correct or "
                "remove the pair, or let the tokenizer drop less (tokenizer.drop)"
            )
    _log_lengths("source", source_limit, sources, pairs)
    _log_lengths("target", target_limit, targets, pairs)
    copy_ids: list[list[int]] = []
    if with_copy_ids:
        copy_ids, targets = _copy_ids(pairs, vocabularies, targets, source_limit)
    return Examples(
        Sequences.from_rows([source[:source_limit] + eos for source in sources]),
        Sequences.from_rows([[SOS, *target[:target_limit], EOS] for target in targets]),
        Sequences.from_rows([row + eos for row in copy_ids]) if with_copy_ids else None,
    )


def log_unknown(name: str, examples: Examples, pairs: Sequence[Pair], vocabularies: Vocabularies) -> None:
    """Count the tokens of a split that are outside the vocabulary, and say where the first one is.

    Args:
        name: what the split is called.
        examples: the encoded pairs.
        pairs: the pairs themselves.
        vocabularies: those with which they were encoded.
    """
    for side, sequences, tokenizer, start in (
        ("source", examples.sources, vocabularies.source, 0),
        ("target", examples.targets, vocabularies.target, 1),  # after SOS
    ):
        if (unknown := tokenizer.id_of(UNKNOWN)) is None:  # a closed vocabulary
            continue
        places = np.flatnonzero(sequences.tokens == unknown)
        if not places.size:
            continue
        rows = np.searchsorted(sequences.offsets, places[:UNKNOWN_READ], side="right") - 1
        tokens: dict[str, None] = {}
        for place, row in zip(places, rows, strict=False):
            spelling = tokenizer.spell(getattr(pairs[row], side))
            tokens[spelling[place - sequences.offsets[row] - start]] = None
        first = pairs[rows[0]].origin or f"pair {rows[0] + 1} of {len(pairs)}"
        total = (sequences.tokens > EOS).sum()
        counted = describe_unknown(len(places), total, side, f"the {name} data", tokens)
        log.warning("%s; first in %s", counted, first)


def describe_unknown(count: int, total: int, side: str, place: str, tokens: Iterable[str]) -> str:
    """Describe the tokens of one side that are outside the vocabulary, by their number and examples.

    Args:
        count: number of these tokens.
        total: number of all tokens.
        side: "source" or "target".
        place: what the tokens are of.
        tokens: distinct tokens, of which the first are the examples. Subwords have lost their spelling.
    """
    named = islice((token.strip() or token for token in tokens if token != UNKNOWN), UNKNOWN_EXAMPLES)
    examples = ", ".join(repr(escape_control_characters(token)) for token in named)
    return (
        f"outside the vocabulary, read as {UNKNOWN}: {count} of {total} {side} tokens of {place}"
        f"{examples and f', such as {examples}'}"
    )


def _log_lengths(
    side: str, limit: int | None, sequences: Sequence[Sequence[int]], pairs: Sequence[Pair]
) -> None:
    """Log how many sequences are truncated; without a limit, warn of one that is far longer than the others.

    A batch is padded to its longest sequence.
    """
    lengths = [len(ids) for ids in sequences]
    if limit is not None:
        if truncated := sum(length > limit for length in lengths):
            text = "%d of %d %ss are truncated to %d tokens: batching.max_%s_length"
            log.warning(text, truncated, len(lengths), side, limit, side)
        return
    if len(lengths) < OUTLIER_PAIRS:
        return
    position, usual = int(np.argmax(lengths)), int(np.quantile(lengths, 0.99))
    if lengths[position] > OUTLIER_FACTOR * usual:
        log.warning(
            "%s: the %s has %d tokens, and 99 %% of the %ss have at most %d. Its batch needs much memory: "
            "correct the line, or set batching.max_%s_length",
            pairs[position].origin or f"pair {position + 1} of {len(pairs)}",
            side,
            lengths[position],
            side,
            usual,
            side,
        )


def _copy_ids(
    pairs: Sequence[Pair],
    vocabularies: Vocabularies,
    targets: Sequence[Sequence[int]],
    source_limit: int | None,
) -> tuple[list[list[int]], list[list[int]]]:
    """Compute the target id of each copied source token, and replace UNK in targets by copied ids.

    Only the first `source_limit` tokens of a source can be copied. Features have PAD, which no search emits.

    Returns:
        For each of N pairs, an id per source token and an id per target token.
    """
    tokenizer = vocabularies.target
    copy_ids, copied_targets = [], []
    for pair, target in zip(pairs, targets, strict=True):
        tokens = vocabularies.source.spell(pair.source)[:source_limit]
        oov_ids = {
            token: tokenizer.size + i
            for i, token in enumerate(vocabularies.oov_tokens(pair.source))
            if token in tokens
        }
        copy_ids.append(
            [
                PAD if is_feature(token) else oov_ids[token] if (id := tokenizer.id_of(token)) is None else id
                for token in tokens
            ]
        )
        spelling = tokenizer.spell(pair.target)
        copied_targets.append([oov_ids.get(token, id) for token, id in zip(spelling, target, strict=True)])
    return copy_ids, copied_targets


def text_limits(
    source_eos: bool, max_source_length: int | None, max_target_length: int | None
) -> tuple[int | None, int | None]:
    """Return the maximum numbers of text tokens, without EOS, of sources and targets; None for no limit."""
    limits = []
    for side, length, eos in (("source", max_source_length, source_eos), ("target", max_target_length, True)):
        if length is not None and length <= eos:
            raise UserError(
                f"batching.max_{side}_length={length} must be at least {eos + 1}, or null for no limit"
            )
        limits.append(None if length is None else length - eos)
    return limits[0], limits[1]
