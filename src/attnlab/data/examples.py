"""Encoded pairs, and their collation to padded batches.

N pairs of a split · B pairs of a batch · S, T as in `attnlab.types`
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from attnlab.data.corpus import Pair
from attnlab.data.features import is_feature
from attnlab.data.mapped import BLOCK, MappedArray, batched
from attnlab.data.tokenization.tokenizer import UNKNOWN, Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies, code_points
from attnlab.errors import UserError
from attnlab.files.cache import with_progress
from attnlab.files.terminal import escape_control_characters
from attnlab.types import EOS, PAD, SOS, Batch

log = logging.getLogger(__name__)

Lengths = NDArray[np.integer[Any]]
Numbers = NDArray[Any] | MappedArray

COPIED = 1 << 20
"""Number of ids above the vocabulary for tokens that are copied from a source; the longest source."""

OUTLIER_PAIRS, OUTLIER_FACTOR = 100, 10
"""In a split of this many pairs, a length of more than so many times the 99th percentile is reported."""

UNKNOWN_READ, UNKNOWN_EXAMPLES = 100, 3
"""The log names at most 3 different tokens, of the first 100 that are outside the vocabulary."""


class Sequences:
    """Sequences of token ids with different lengths, stored in one array.

    Args:
        tokens: ids of all sequences, [sum of the lengths]; an array, or a file of one.
        offsets: start of each sequence, then the end of the last, [N + 1].
        lengths: length of each sequence, [N]; None to compute them.
    """

    def __init__(self, tokens: Numbers, offsets: Numbers, lengths: Numbers | None = None) -> None:
        self._files = [part for part in (tokens, offsets, lengths) if isinstance(part, MappedArray)]
        self.tokens, self.offsets = _array(tokens), _array(offsets)
        self.lengths: Lengths = np.diff(self.offsets) if lengths is None else _array(lengths)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sequences, tuple(self._files) or (self.tokens, self.offsets, self.lengths)

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> Sequences:
        """Concatenate N sequences of token ids."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=offsets[-1]), offsets)

    @classmethod
    def from_files(cls, folder: Path, name: str) -> Sequences:
        """Map the files of a `SequenceWriter`."""
        (tokens,) = folder.glob(f"{name}.*int*")
        return cls(
            MappedArray(tokens, tokens.suffix[1:]),
            MappedArray(folder / f"{name}.offsets", np.int64),
            MappedArray(folder / f"{name}.lengths", np.int32),
        )

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
        self.release()
        return torch.from_numpy(rows), torch.from_numpy(lengths)

    def release(self) -> None:
        """Remove the pages of mapped files from the memory of this process."""
        for file in self._files:
            file.release()


class SequenceWriter:
    """Collects sequences of token ids in memory, or in files.

    Args:
        folder: folder of the files; None for arrays in memory.
        name: start of the names of the files.
        size: all ids are below it.
    """

    def __init__(self, folder: Path | None, name: str, *, size: int) -> None:
        self._place = folder, name
        self._dtype = np.dtype(np.uint16 if size <= 1 << 16 else np.int32)
        self._blocks: list[Sequences] = []
        self._end = 0
        if folder is not None:
            self._append(f".{self._dtype}", np.empty(0))
            self._append(".offsets", np.zeros(1, np.int64))

    def append(self, rows: Sequence[Sequence[int]]) -> None:
        """Append N sequences of ids."""
        block = Sequences.from_rows(rows)
        if self._place[0] is None:
            self._blocks.append(block)
            return
        self._append(f".{self._dtype}", block.tokens.astype(self._dtype))
        self._append(".offsets", block.offsets[1:] + self._end)
        self._append(".lengths", block.lengths.astype(np.int32))
        self._end += int(block.offsets[-1])

    def finish(self) -> Sequences:
        """Return all sequences that were appended."""
        folder, name = self._place
        if folder is not None:
            return Sequences.from_files(folder, name)
        if len(self._blocks) == 1:
            return self._blocks[0]
        lengths = [np.zeros(1, np.int64), *(block.lengths for block in self._blocks)]
        tokens = [np.empty(0, np.int32), *(block.tokens for block in self._blocks)]
        return Sequences(np.concatenate(tokens), np.cumsum(np.concatenate(lengths)))

    def _append(self, suffix: str, values: NDArray[Any]) -> None:
        folder, name = self._place
        assert folder is not None
        with (folder / f"{name}{suffix}").open("ab") as file:
            file.write(values.tobytes())


def _array(numbers: Numbers) -> NDArray[Any]:
    return numbers.array if isinstance(numbers, MappedArray) else numbers


class Examples(Dataset[Batch]):
    """The encoded pairs of a split. Indexing with a list of B positions returns a `Batch`.

    torch's `DataLoader(examples, batch_size=…)` works too.

    Attributes:
        pairs: the same pairs as text; empty unless they are set.
    """

    def __init__(self, sources: Sequences, targets: Sequences, copy_ids: Sequences | None = None) -> None:
        self.sources = sources
        self.targets = targets
        self.copy_ids = copy_ids
        self.pairs: Sequence[Pair] = ()

    def __len__(self) -> int:
        return len(self.sources.offsets) - 1

    def __getitem__(self, indices: list[int]) -> Batch:
        source, source_lengths = self.sources.padded(indices)
        target, _ = self.targets.padded(indices)
        copy_ids = None if self.copy_ids is None else self.copy_ids.padded(indices)[0]
        return Batch(source, source_lengths, target, torch.tensor(indices), copy_ids)

    def __getitems__(self, indices: list[int]) -> list[Batch]:
        """Return the batch that a DataLoader collates, in a list."""
        return [self[indices]]

    @property
    def source_lengths(self) -> Lengths:
        """S of each pair, [N]; counts the EOS if sources end with one."""
        return self.sources.lengths

    @property
    def target_lengths(self) -> Lengths:
        """T of each pair, [N]: the number of predicted tokens, EOS included and SOS not."""
        return self.targets.lengths - 1


default_collate_fn_map[Batch] = lambda batches, **_: batches[0]


def encode(
    pairs: Sequence[Pair],
    vocabularies: Vocabularies,
    *,
    source_eos: bool,
    max_source_length: int | None,
    max_target_length: int | None,
    with_copy_ids: bool = False,
    folder: Path | None = None,
) -> Examples:
    """Encode raw pairs as token ids. Targets become SOS … EOS.

    Args:
        max_source_length: truncate sources to this S, their EOS included; None for no limit. The EOS is kept.
        max_target_length: truncate targets to this T, their EOS included; None for no limit. The EOS is kept.
        with_copy_ids: add `Batch.copy_ids` for readouts that copy, and give target tokens outside the
            vocabulary that occur in the source the id they are copied as. Source and target tokens are
            compared as text, so both tokenizers must split it in the same way.
        folder: write the ids into files of this folder; None to keep them in memory.
    """
    eos = [EOS] if source_eos else []
    source_limit, target_limit = text_limits(source_eos, max_source_length, max_target_length)
    source_size, target_size = vocabularies.source.size, vocabularies.target.size
    copied_size = target_size + COPIED if with_copy_ids else target_size
    source_writer = SequenceWriter(folder, "source", size=source_size)
    target_writer = SequenceWriter(folder, "target", size=copied_size)
    copy_writer = SequenceWriter(folder, "copy", size=copied_size) if with_copy_ids else None
    cut_sources = cut_targets = 0
    blocks = with_progress(batched(pairs, BLOCK), "pairs encoded", size=len)
    for start, block in zip(range(0, len(pairs), BLOCK), blocks, strict=True):
        sources = vocabularies.source.encode_all([pair.source for pair in block])
        targets = vocabularies.target.encode_all([pair.target for pair in block])
        _check(block, sources, targets, vocabularies, start, len(pairs))
        cut_sources += _count_longer(sources, source_limit)
        cut_targets += _count_longer(targets, target_limit)
        if copy_writer is not None:
            copy_ids, targets = _copy_ids(block, vocabularies, targets, source_limit)
            copy_writer.append([row + eos for row in copy_ids])
        source_writer.append([source[:source_limit] + eos for source in sources])
        target_writer.append([[SOS, *target[:target_limit], EOS] for target in targets])
    examples = Examples(
        source_writer.finish(), target_writer.finish(), None if copy_writer is None else copy_writer.finish()
    )
    _log_lengths("source", source_limit, cut_sources, examples.sources.lengths - len(eos), pairs)
    _log_lengths("target", target_limit, cut_targets, examples.targets.lengths - 2, pairs)
    return examples


def _count_longer(rows: Sequence[Sequence[int]], limit: int | None) -> int:
    return 0 if limit is None else sum(len(row) > limit for row in rows)


def _check(
    pairs: Sequence[Pair],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    vocabularies: Vocabularies,
    start: int,
    total: int,
) -> None:
    """Raise `UserError` at links to tokens that do not exist, and at sources without tokens."""
    for number, (pair, source, target) in enumerate(zip(pairs, sources, targets, strict=True), start=1):
        if source and pair.alignment is None:
            continue
        place = pair.origin or f"pair {start + number} of {total}"
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
        count = total = 0
        first: list[int] = []
        for row in range(0, len(examples), BLOCK):
            begin, end = sequences.offsets[[row, min(row + BLOCK, len(examples))]]
            ids = sequences.tokens[begin:end]
            places = np.flatnonzero(ids == unknown)
            count += len(places)
            total += int((ids > EOS).sum())
            first += (places[: UNKNOWN_READ - len(first)] + begin).tolist()
            sequences.release()
        if not count:
            continue
        rows = np.searchsorted(sequences.offsets, first, side="right") - 1
        tokens: dict[str, None] = {}
        for place, row in zip(first, rows.tolist(), strict=True):
            spelling = tokenizer.spell(getattr(pairs[row], side))
            tokens[spelling[place - sequences.offsets[row] - start]] = None
        origin = pairs[int(rows[0])].origin or f"pair {rows[0] + 1} of {len(pairs)}"
        counted = describe_unknown(count, total, side, f"the {name} data", tokens, tokenizer)
        log.warning("%s; first in %s", counted, origin)


def describe_unknown(
    count: int, total: int, side: str, place: str, tokens: Iterable[str], tokenizer: Tokenizer
) -> str:
    """Describe the tokens of one side that are outside the vocabulary, by their number and examples.

    Args:
        count: number of these tokens.
        total: number of all tokens.
        side: "source" or "target".
        place: what the tokens are of.
        tokens: distinct tokens, of which the first are the examples. Subwords have lost their spelling.
        tokenizer: the tokenizer of this side.
    """
    named = islice((token.strip() or token for token in tokens if token != UNKNOWN), UNKNOWN_EXAMPLES)
    examples = ", ".join(
        repr(escape_control_characters(token)) + _other_form(token, tokenizer) for token in named
    )
    return (
        f"outside the vocabulary, read as {UNKNOWN}: {count} of {total} {side} tokens of {place}"
        f"{examples and f', such as {examples}'}"
    )


def _other_form(token: str, tokenizer: Tokenizer) -> str:
    """Return the code points of a token that looks like one of the vocabulary, and of that; else nothing."""
    for other in (unicodedata.normalize("NFC", token), unicodedata.normalize("NFD", token)):
        if tokenizer.id_of(other) is not None:
            return f" ({code_points(token)}; the vocabulary has {code_points(other)})"
    return ""


def _log_lengths(
    side: str, limit: int | None, truncated: int, lengths: Lengths, pairs: Sequence[Pair]
) -> None:
    """Log how many sequences are truncated; without a limit, warn of one that is far longer than the others.

    A batch is padded to its longest sequence.
    """
    if limit is not None:
        if truncated:
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


def first_positions(pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """Return the position of the first pair with the same input, for each of N pairs, [N].

    Pairs with the same source and annotations, such as the names that placeholders stand for, are one input
    with several references.
    """
    first: dict[tuple[str, str], int] = {}
    keys = ((pair.source, str(pair.annotations)) for pair in pairs)
    return np.array([first.setdefault(key, position) for position, key in enumerate(keys)], dtype=np.int64)
