"""Encoded pairs, and their collation to padded batches.

N pairs of a split · B pairs of a batch · S, T as in `attnlab.types`
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

from attnlab.data.corpus import Origin, Pair
from attnlab.data.features import is_feature
from attnlab.data.mapped import BLOCK, SIDES, Store, are_plain, select, text_blocks
from attnlab.data.tokenization.tokenizer import UNKNOWN, Rows, Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies, code_points
from attnlab.data.tokenization.word_encoder import WordEncoder
from attnlab.errors import UserError
from attnlab.files.cache import with_progress
from attnlab.files.terminal import escape_control_characters
from attnlab.types import EOS, PAD, SOS, Batch

log = logging.getLogger(__name__)

Lengths = NDArray[np.integer[Any]]

COPIED = 1 << 20
"""Number of ids above the vocabulary for tokens that are copied from a source; the longest source."""

FEW = 1000  # Up to this number of pairs, the words of a text are not kept for other texts

OUTLIER_PAIRS, OUTLIER_FACTOR = 100, 10
"""In a split of this many pairs, a length of more than so many times the 99th percentile is reported."""

UNKNOWN_READ, UNKNOWN_EXAMPLES = 100, 3
"""The log names at most 3 different tokens, of the first 100 that are outside the vocabulary."""


class Sequences:
    """Sequences of token ids with different lengths, stored in one array.

    Attributes:
        lengths: length of each sequence, [N].
    """

    def __init__(self, store: Store, name: str) -> None:
        self._arguments = store, name
        self.lengths: Lengths = store.array(f"{name}.lengths")
        self._starts = store.array(f"{name}.starts")  # [N]
        self._tokens = store.array(f"{name}.tokens")  # [sum of the lengths]

    def __reduce__(self) -> tuple[Any, ...]:
        return Sequences, self._arguments

    @staticmethod
    def append(store: Store, name: str, rows: Rows, dtype: DTypeLike) -> None:
        """Append sequences of token ids."""
        start = store.append(f"{name}.tokens", rows.tokens.astype(dtype)) - len(rows.tokens)
        store.append(f"{name}.starts", start + rows.ends - rows.lengths)
        store.append(f"{name}.lengths", rows.lengths.astype(np.int32))

    def padded(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the sequences at B indices.

        Returns:
            The ids [B, longest] int64, padded with PAD at the end, and the lengths [B] int64.
        """
        starts, lengths = self._starts[indices], self.lengths[indices].astype(np.int64)  # [B]
        positions = np.arange(lengths.max())  # [longest]
        real = positions < lengths[:, None]  # [B, longest]
        rows = np.full(real.shape, PAD, dtype=np.int64)  # [B, longest]
        rows[real] = self._tokens[(starts[:, None] + positions)[real]]
        self._arguments[0].release()
        return torch.from_numpy(rows), torch.from_numpy(lengths)


class Examples(Dataset[Batch]):
    """The encoded pairs of a split. Indexing with a list of B positions returns a `Batch`.

    Attributes:
        pairs: the same pairs as text; empty unless they are set.
        name: what the split is called in messages; empty for none.
    """

    def __init__(self, sources: Sequences, targets: Sequences, copy_ids: Sequences | None = None) -> None:
        self.sources = sources
        self.targets = targets
        self.copy_ids = copy_ids
        self.pairs: Sequence[Pair] = ()
        self.name = ""

    @classmethod
    def of(cls, store: Store, *, with_copy_ids: bool) -> Examples:
        """Return the pairs that `encode` wrote into a store."""
        names = ("source", "target", "copy") if with_copy_ids else ("source", "target")
        return cls(*(Sequences(store, name) for name in names))

    def __len__(self) -> int:
        return len(self.sources.lengths)

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

    @cached_property
    def inputs(self) -> NDArray[np.int64]:
        """Position of the first pair with the same input, for each of N pairs, [N].

        Pairs with the same source and annotations, such as the names that placeholders stand for, are one
        input with several references.
        """
        first: dict[tuple[str, str], int] = {}
        keys = ((pair.source, str(pair.annotations)) for pair in self.pairs)
        inputs = np.array([first.setdefault(key, position) for position, key in enumerate(keys)], np.int64)
        if len(first) < len(inputs) and self.name:
            message = (
                "the %s data has %d inputs in %d pairs: pairs with the same source are scored as one input "
                "with several references"
            )
            log.info(message, self.name, len(first), len(inputs))
        return inputs


default_collate_fn_map[Batch] = lambda batches, **_: batches[0]


class _Side:
    """Encodes the texts of one side, and counts the sequences that are cut and the unknown tokens."""

    def __init__(self, name: str, tokenizer: Tokenizer, length: int | None, eos: bool) -> None:
        if length is not None and length <= eos:
            raise UserError(
                f"batching.max_{name}_length={length} must be at least {eos + 1}, or null for no limit"
            )
        self.name, self.tokenizer = name, tokenizer
        self.limit = None if length is None else length - eos  # number of tokens of the text
        self.unknown = tokenizer.id_of(UNKNOWN)  # None if the vocabulary is closed
        self.cut_count = self.count = self.total = 0
        self.examples: dict[str, None] = {}
        self.first: tuple[int, Origin | None] | None = None  # number and origin of the first pair with one

    def cut(self, rows: Rows, pairs: Sequence[Pair], start: int) -> Rows:
        """Return the token ids of the pairs from position `start` on, within the limit."""
        if self.limit is not None:
            self.cut_count += int((rows.lengths > self.limit).sum())
            rows = rows.select(np.arange(len(rows.lengths)), self.limit)
        self.total += len(rows.tokens)
        unknown = np.flatnonzero(rows.tokens == self.unknown)
        owners, counts = np.unique(np.searchsorted(rows.ends, unknown, side="right"), return_counts=True)
        for position, count in zip((start + owners).tolist(), counts.tolist(), strict=True):
            if self.count < UNKNOWN_READ:
                self._add_examples(pairs[position], position, rows.select(np.array([position - start])))
            self.count += count
        return rows

    def _add_examples(self, pair: Pair, position: int, row: Rows) -> None:
        self.first = self.first or (position + 1, pair.origin)
        spelled = zip(self.tokenizer.spell(getattr(pair, self.name)), row.tokens.tolist(), strict=False)
        self.examples |= {token: None for token, id in spelled if id == self.unknown}

    def log(self, split: str | None, lengths: Lengths, pairs: Sequence[Pair]) -> None:
        """Log what was counted. `split` is the name of the pairs; None to log no unknown tokens."""
        if self.cut_count:
            text = "%d of %d %ss are truncated to %d tokens: batching.max_%s_length"
            log.warning(text, self.cut_count, len(lengths), self.name, self.limit, self.name)
        if self.limit is None and len(lengths) >= OUTLIER_PAIRS:
            self._log_outlier(lengths, pairs)
        if self.first is not None and split is not None:
            number, origin = self.first
            place = f"the {split} data"
            counted = describe_unknown(
                self.count, self.total, self.name, place, self.examples, self.tokenizer
            )
            log.warning("%s; first in %s", counted, origin or f"pair {number} of {len(pairs)}")

    def _log_outlier(self, lengths: Lengths, pairs: Sequence[Pair]) -> None:
        """Warn of a sequence that is far longer than the others, since its batch is padded to it."""
        position, usual = int(np.argmax(lengths)), int(np.quantile(lengths, 0.99))
        if lengths[position] > OUTLIER_FACTOR * usual:
            log.warning(
                "%s: the %s has %d tokens, and 99 %% of the %ss have at most %d. Its batch needs much "
                "memory: correct the line, or set batching.max_%s_length",
                pairs[position].origin or f"pair {position + 1} of {len(pairs)}",
                *(self.name, lengths[position], self.name, usual, self.name),
            )


def encode(
    pairs: Sequence[Pair],
    vocabularies: Vocabularies,
    *,
    source_eos: bool,
    max_source_length: int | None,
    max_target_length: int | None,
    with_copy_ids: bool = False,
    name: str | None = None,
    store: Store | None = None,
) -> Examples:
    """Encode raw pairs as token ids. Targets become SOS … EOS.

    Args:
        max_source_length: truncate sources to this S, their EOS included; None for no limit. The EOS is kept.
        max_target_length: truncate targets to this T, their EOS included; None for no limit. The EOS is kept.
        with_copy_ids: add `Batch.copy_ids` for readouts that copy, and give target tokens outside the
            vocabulary that occur in the source the id they are copied as. Source and target tokens are
            compared as text, so both tokenizers must split it in the same way.
        name: what the pairs are called in the warning of tokens outside the vocabulary; None for no warning.
        store: where the ids are stored; None for memory.
    """
    encoders = [WordEncoder(side) if len(pairs) > FEW else side.encode_all for side in vocabularies]
    source = _Side("source", vocabularies.source, max_source_length, source_eos)
    target = _Side("target", vocabularies.target, max_target_length, True)
    store = Store() if store is None else store
    copied = target.tokenizer.size + COPIED * with_copy_ids
    sizes = {"source": source.tokenizer.size, "target": copied, "copy": copied}
    are_linked = not are_plain(pairs)
    read = zip(*(text_blocks(pairs, side) for side in SIDES), strict=True)
    blocks = with_progress(read, "pairs encoded", size=lambda block: len(block[0]))
    for start, texts in zip(range(0, len(pairs), BLOCK), blocks, strict=True):
        sources, targets = (encode(each) for encode, each in zip(encoders, texts, strict=True))
        _check(pairs, start, sources, targets, vocabularies if are_linked else None)
        rows: dict[str, Rows] = {}
        if with_copy_ids:
            block = select(pairs, np.arange(start, start + len(sources.lengths)))
            rows["copy"], targets = _copy_ids(block, vocabularies, targets, source.limit)
        rows["source"] = source.cut(sources, pairs, start)
        for part in rows if source_eos else ():
            rows[part] = rows[part].with_last(EOS)
        rows["target"] = target.cut(targets, pairs, start).with_first(SOS).with_last(EOS)
        for part, each in rows.items():
            Sequences.append(store, part, each, np.uint16 if sizes[part] <= 1 << 16 else np.int32)
    examples = Examples.of(store, with_copy_ids=with_copy_ids)
    source.log(name, examples.sources.lengths - source_eos, pairs)
    target.log(name, examples.targets.lengths - 2, pairs)
    return examples


def _check(
    pairs: Sequence[Pair], start: int, sources: Rows, targets: Rows, vocabularies: Vocabularies | None
) -> None:
    """Raise `UserError` at links to tokens that do not exist, and at sources without tokens."""
    checked = np.arange(len(sources.lengths)) if vocabularies else np.flatnonzero(sources.lengths == 0)
    for pair, number in zip(select(pairs, start + checked), checked.tolist(), strict=True):
        place = pair.origin or f"pair {start + number + 1} of {len(pairs)}"
        sizes = int(sources.lengths[number]), int(targets.lengths[number])
        for link in (vocabularies and vocabularies.gold_alignment(pair)) or ():
            if link[0] >= sizes[0] or link[1] >= sizes[1]:
                raise UserError(
                    f"{place}, {pair.source!r}: the alignment has the link {link[0]}-{link[1]}, but there "
                    f"are {sizes[0]} source and {sizes[1]} target tokens. Count tokens from 0, and use the "
                    "tokenization of the aligner"
                )
        if not sizes[0]:
            raise UserError(
                f"{place}: the source {pair.source!r} (target {pair.target!r}) has no tokens. Correct or "
                "remove the pair, or let the tokenizer drop less (tokenizer.drop)"
            )


def describe_unknown(
    count: int, total: int, side: str, place: str, tokens: Iterable[str], tokenizer: Tokenizer
) -> str:
    """Describe `count` of `total` tokens of one side that are outside the vocabulary, with examples."""
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


def _copy_ids(
    pairs: Sequence[Pair], vocabularies: Vocabularies, targets: Rows, source_limit: int | None
) -> tuple[Rows, Rows]:
    """Return the target id of each copied source token, and the targets with copied ids in place of UNK."""
    tokenizer = vocabularies.target
    copy_ids, copied_targets = [], []
    for pair, target in zip(pairs, targets.tolist(), strict=True):
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
    return Rows.of(copy_ids), Rows.of(copied_targets)
