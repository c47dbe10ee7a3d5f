"""Encoded pairs, the order in which they are visited, and how a batch is put together.

N pairs in a split · B pairs in a batch · S, T as in `attnlab.types`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from attnlab.data.corpus import Alignment, Pair
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.types import EOS, PAD, SOS, Batch

Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Sequences:
    """Sequences of unequal length, end to end."""

    tokens: NDArray[np.int32]  # [sum of the lengths]
    offsets: NDArray[np.int64]  # [N + 1]: where each begins, and the end

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Sequences:
        """Lay these rows end to end."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        return cls(np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=offsets[-1]), offsets)

    @property
    def lengths(self) -> Lengths:
        """[N]."""
        return np.diff(self.offsets)

    def padded(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The chosen sequences, [B, longest] int64 with PAD at the end, and their lengths, [B] int64."""
        starts = self.offsets[np.asarray(indices)]  # [B]
        lengths = self.offsets[np.asarray(indices) + 1] - starts  # [B]
        positions = np.arange(lengths.max())  # [longest]
        real = positions < lengths[:, None]  # [B, longest]
        rows = np.full(real.shape, PAD, dtype=np.int64)  # [B, longest]
        rows[real] = self.tokens[(starts[:, None] + positions)[real]]
        return torch.from_numpy(rows), torch.from_numpy(lengths)


class Examples(Dataset[Batch]):
    """The encoded pairs of a split. Indexed with a list of places, it gives a whole batch."""

    def __init__(self, sources: Sequences, targets: Sequences, copy_ids: Sequences | None = None) -> None:
        self._sources = sources
        self._targets = targets
        self._copy_ids = copy_ids

    def __len__(self) -> int:
        return len(self._sources.lengths)

    @property
    def sides(self) -> dict[str, Sequences]:
        """What this was made of, by the names of the arguments."""
        sides = {"sources": self._sources, "targets": self._targets, "copy_ids": self._copy_ids}
        return {name: sequences for name, sequences in sides.items() if sequences is not None}

    def __getitem__(self, indices: list[int]) -> Batch:
        source, source_lengths = self._sources.padded(indices)
        target, _ = self._targets.padded(indices)
        copy_ids = None if self._copy_ids is None else self._copy_ids.padded(indices)[0]
        return Batch(source, source_lengths, target, torch.tensor(indices), copy_ids)

    @property
    def source_lengths(self) -> Lengths:
        """[N]: the S of each pair, its EOS included where sources end with one."""
        return self._sources.lengths

    @property
    def target_lengths(self) -> Lengths:
        """[N]: the T of each pair, the number of tokens to predict: EOS counts, SOS does not."""
        return self._targets.lengths - 1


def encode(
    pairs: Sequence[Pair],
    vocabularies: Vocabularies,
    *,
    source_eos: bool,
    max_source_length: int | None,
    max_target_length: int | None,
    copying: bool = False,
) -> Examples:
    """Turn raw pairs into token ids: sources end with EOS if `source_eos`, targets are SOS … EOS.

    A longer source is cut to S = `max_source_length` and a longer target to T = `max_target_length`
    (None: never). Each bound counts the EOS, which a cut sequence keeps, and not the SOS. Raises
    `UserError` at a source without tokens, and at a gold alignment that links what is not there.

    With `copying`, batches say what copying each source token would write, and a target word outside the
    vocabulary that stands in the source has the id it would be copied as. What is spelt alike is alike: both
    sides' tokenizers must cut a text into the same words or subwords.
    """
    end = [EOS] if source_eos else []
    source_room = _room("batching.max_source_length", max_source_length, marks=len(end))
    target_room = _room("batching.max_target_length", max_target_length, marks=1)
    sources = vocabularies.source.encode_all([pair.source for pair in pairs])
    targets = vocabularies.target.encode_all([pair.target for pair in pairs])
    for number, (pair, source, target) in enumerate(zip(pairs, sources, targets, strict=True), start=1):
        for link in vocabularies.gold_alignment(pair) or ():
            if link[0] >= len(source) or link[1] >= len(target):
                raise UserError(
                    f"pair {number} of {len(pairs)}, {pair.source!r}: its alignment links "
                    f"{link[0]}-{link[1]}, but there are {len(source)} source and {len(target)} target "
                    "tokens: count from 0, and use a tokenizer that cuts as the aligner did"
                )
        if not source:
            raise UserError(
                f"pair {number} of {len(pairs)}: the tokenizer leaves nothing of the source {pair.source!r} "
                f"(target {pair.target!r}): mend or remove that pair, or drop less (tokenizer.drop)"
            )
    copy_ids: list[list[int]] = []
    if copying:
        copy_ids, targets = _as_copied(pairs, vocabularies, targets, source_room)
    return Examples(
        Sequences.of([source[:source_room] + end for source in sources]),
        Sequences.of([[SOS, *target[:target_room], EOS] for target in targets]),
        Sequences.of([copy + end for copy in copy_ids]) if copying else None,
    )


def _as_copied(
    pairs: Sequence[Pair],
    vocabularies: Vocabularies,
    targets: Sequence[Sequence[int]],
    source_room: int | None,
) -> tuple[list[list[int]], list[list[int]]]:
    """What each source token would be copied as, and the targets with copied words in place of UNK.

    Of a source that is cut, only what is left can be copied.
    """
    tokenizer = vocabularies.target
    copy_ids, copied_targets = [], []
    for pair, target in zip(pairs, targets, strict=True):
        words = vocabularies.source.spell(pair.source)[:source_room]
        oov_tokens = {
            word: tokenizer.size + i
            for i, word in enumerate(vocabularies.oov_tokens(pair.source))
            if word in words
        }
        copy_ids.append([oov_tokens[word] if (id := tokenizer.id_of(word)) is None else id for word in words])
        words = tokenizer.spell(pair.target)
        copied_targets.append([oov_tokens.get(word, id) for word, id in zip(words, target, strict=True)])
    return copy_ids, copied_targets


def aligned(batch: Batch, alignments: Sequence[Alignment | None]) -> Tensor:
    """[B, T, S] bool, True where the gold alignment of a batch's pair links two of its tokens.

    `alignments` are those of its B pairs, in order; a pair without one is not linked anywhere. Nor is an EOS,
    and links to what was cut off are dropped.
    """
    gold = torch.zeros(*batch.labels.shape, batch.source.size(1), dtype=torch.bool)  # [B, T, S]
    links = [
        (row, target, source)
        for row, alignment in enumerate(alignments)
        for source, target in alignment or ()
        if target < gold.size(1) and source < gold.size(2)
    ]
    if links:
        gold[torch.tensor(links).unbind(1)] = True
    return gold.to(batch.source.device) & batch.target_text[:, :, None] & batch.source_text[:, None]


def aligned_output(batch: Batch, gold: Tensor, row: int, output: Sequence[int]) -> Tensor:
    """[T, S] bool, the links of `aligned` for an output of T - 1 tokens and its EOS, of the pair in this row.

    They are known as far as the output is the reference: nobody has aligned what comes after a token that is
    another.
    """
    reference = batch.labels[row, batch.target_text[row]].tolist()
    same = [ours == theirs for ours, theirs in zip(output, reference, strict=False)]
    agreed = [*same, False].index(False)
    links = gold.new_zeros(len(output) + 1, int(batch.source_lengths[row]))  # [T, S]
    links[:agreed] = gold[row, :agreed, : links.size(1)]
    return links


def _room(setting: str, bound: int | None, *, marks: int) -> int | None:
    """How many tokens of text a sequence may have, besides its end mark."""
    if bound is None:
        return None
    if bound <= marks:
        raise UserError(f"{setting}={bound} leaves no room for text: give at least {marks + 1}, or null")
    return bound - marks


class BatchOrder(Sampler[list[int]]):
    """The order of training: every pair exactly once an epoch, over all processes together.

    It depends on the seed and the epoch alone. The number of batches is the same in every epoch and on
    every rank, and equals `len`; at each step, all ranks get batches of about the same length if
    `bucket_by_length`. The longest target of a batch comes first, so that a decoder can skip finished rows.

    batch_type="sentences"
        A batch holds at most `size` pairs, and batches differ by at most one; there are as few as come out
        even among `world` ranks. (Only where `size` is 1 may some hold 2, for that.) With `bucket_by_length`,
        pairs are shuffled and dealt to pools of `pool` steps (a step is a batch a rank), sorted by length
        inside each pool, and cut into batches.
    batch_type="tokens"
        The padded tokens of a batch, (longest source + longest target) · B, are at most `size`; a longer
        pair makes a batch by itself. The whole split is sorted, equal lengths in random order, so that the
        batches have the same sizes in every epoch. This is always of like length.

    Raises `UserError` where there are too few pairs to give every rank its batches.
    """

    def __init__(
        self,
        source_lengths: Lengths,  # [N]
        target_lengths: Lengths,  # [N]
        *,
        size: int,
        batch_type: Literal["sentences", "tokens"] = "sentences",
        bucket_by_length: bool = True,
        pool: int = 50,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self._source_lengths = source_lengths
        self._target_lengths = target_lengths
        self._bucket_by_length = bucket_by_length
        self._seed = seed
        self._rank = rank
        self._world = world
        if batch_type == "tokens":
            if not bucket_by_length:
                raise UserError(
                    "batching.batch_type=tokens sorts by length: set batching.bucket_by_length=true, or "
                    "batching.batch_type=sentences"
                )
            sizes = _token_sizes(source_lengths, target_lengths, size=size, world=world)
            pools = np.zeros(len(sizes), dtype=np.int64)
        else:
            sizes = _even_sizes(len(source_lengths), size=size, world=world)
            if pool < 1:
                raise UserError(f"batching.pool={pool}: a pool holds at least 1 batch")
            pools = np.arange(len(sizes)) // (pool * world)
        self._bounds = np.cumsum(sizes)[:-1]  # [batches - 1]: where one batch ends and the next begins
        self._pools = np.repeat(pools, sizes)  # [N]: the pool of each place in the order
        self._epoch = 0
        self._resumed_epoch = 0
        self._resumed_batch = 0

    def __len__(self) -> int:
        """The batches of a whole epoch on one rank, wherever it was resumed."""
        return (len(self._bounds) + 1) // self._world

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iterators go through."""
        self._epoch = epoch

    def resume(self, epoch: int, batch: int) -> None:
        """Continue with this batch of this epoch: its iterators, however many are made, begin there."""
        self._epoch = self._resumed_epoch = epoch
        self._resumed_batch = batch

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng((self._seed, self._epoch))
        order = random.permutation(len(self._pools))  # [N]
        if self._bucket_by_length:
            order = order[np.lexsort((self._target_lengths[order], self._source_lengths[order], self._pools))]
        batches = np.split(order, self._bounds)
        steps = random.permutation(len(self))
        begin = self._resumed_batch if self._epoch == self._resumed_epoch else 0
        for step in steps[begin:]:
            batch = batches[step * self._world + self._rank]
            yield batch[np.argsort(-self._target_lengths[batch], kind="stable")].tolist()


class EvaluationOrder(Sampler[list[int]]):
    """A rank's share of a split: sorted by length, every pair exactly once over all ranks.

    Sums over ranks are therefore exact, and every rank has the same number of batches. Raises `UserError`
    where there are fewer pairs than ranks.
    """

    def __init__(self, lengths: Lengths, *, size: int, rank: int = 0, world: int = 1) -> None:
        bounds = np.cumsum(_even_sizes(len(lengths), size=size, world=world))[:-1]
        self._batches = np.split(np.argsort(lengths, kind="stable"), bounds)[rank::world]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self._batches)


def _even_sizes(total: int, *, size: int, world: int) -> NDArray[np.int64]:
    """Sizes of a multiple of `world` batches that differ by at most one.

    None is above `size`, unless size is 1 and the pairs do not come out even among the ranks.
    """
    _check(total, size, world)
    steps = min(-(-total // (size * world)), total // world)
    count = steps * world
    return np.full(count, total // count) + (np.arange(count) < total % count)


def _token_sizes(
    source_lengths: Lengths, target_lengths: Lengths, *, size: int, world: int
) -> NDArray[np.int64]:
    """Sizes of the batches of the sorted split, a multiple of `world`, within `size` padded tokens each."""
    _check(len(source_lengths), size, world)
    order = np.lexsort((target_lengths, source_lengths))
    sizes: list[int] = []
    count = longest_target = 0
    for source, target in zip(source_lengths[order].tolist(), target_lengths[order].tolist(), strict=True):
        longest_target = max(longest_target, target)
        # Sources come sorted, so this one is the longest.
        if count and (source + longest_target) * (count + 1) > size:
            sizes.append(count)
            count, longest_target = 0, target
        count += 1
    sizes.append(count)
    while len(sizes) % world:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        half = sizes[largest] // 2
        if half == 0:
            raise UserError(
                f"batching.batch_size={size} tokens makes {len(sizes)} batches of one pair, which {world} "
                "processes cannot share evenly: allow more tokens"
            )
        sizes[largest : largest + 1] = [half, sizes[largest] - half]
    return np.array(sizes)


def _check(total: int, size: int, world: int) -> None:
    if size < 1:
        raise UserError(f"batching.batch_size={size}: a batch holds at least 1")
    if total < world:
        raise UserError(f"{total} pairs cannot give each of {world} processes a batch: use fewer processes")
