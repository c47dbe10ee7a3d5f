"""Batch samplers for training and evaluation, deterministic and aware of distributed processes.

N pairs of a split · B pairs of a batch
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler, SequentialSampler

from attnlab.data.examples import Lengths
from attnlab.errors import UserError

BatchType = Literal["sentences", "tokens"]


class TrainingBatchSampler(Sampler[Any]):
    """Batches of indices for training: every pair exactly once per epoch, over all processes together.

    With `draws`, the pairs of each part are drawn as often as it says instead. For batches of tokens, a pair
    that not every epoch draws is one of several of similar length, and the longest of these counts.

    The batches depend only on the seed and the epoch. Every epoch has the same number of batches on each
    rank. The longest target of a batch comes first, so that a decoder can skip finished rows.

    batch_type="sentences"
        A batch has at most `size` pairs, and batch sizes differ by at most one. The number of batches is the
        smallest that is divisible by `world`; with `size` 1 some batches therefore may have 2 pairs. With
        `bucket_by_length`, pairs are shuffled, divided into pools of `pool` batches per rank, and sorted by
        length within each pool before they are divided into batches; else the order is random.
    batch_type="tokens"
        (longest source + longest target) · B, the number of padded tokens, is at most `size`; a longer pair
        is a batch by itself. The whole split is sorted by length with ties in random order, so that all
        epochs have the same batch sizes.

    At each step all ranks get batches of similar length, if batches are sorted by length.

    Args:
        source_lengths: S of each pair, [N].
        target_lengths: T of each pair, [N].
        size, batch_type, bucket_by_length, pool, seed: as of `Seq2SeqData`; `size` is its `batch_size`, and
            `pool` is for each rank.
        draws: as of `Corpus`. A pair is drawn again when all pairs of its part have been drawn as often.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        *,
        size: int,
        batch_type: BatchType = "sentences",
        bucket_by_length: bool = False,
        pool: int = 50,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        draws: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._draws = draws
        self._target_lengths = target_lengths
        self._choices = None
        if draws and batch_type == "tokens":
            self._choices = _choices(source_lengths, target_lengths, draws)
            source_lengths, target_lengths = self._choices.longest(source_lengths, target_lengths)
        self._sort_keys = target_lengths, source_lengths
        self._sort = bucket_by_length or batch_type == "tokens"
        self._seed = seed
        self._rank = rank
        self._world = world
        if batch_type == "tokens":
            sizes = _token_batch_sizes(source_lengths, target_lengths, size=size, world=world)
            pool = len(sizes)
        else:
            sizes = _even_batch_sizes(len(source_lengths), size=size, world=world)
        self._bounds = np.cumsum([0, *sizes])  # [batches + 1]: where batches begin and end
        self._pool_bounds = [*self._bounds[: -1 : pool * world], self._bounds[-1]]
        self._epoch = 0
        self._resumed_epoch = 0
        self._resumed_batch = 0

    def __len__(self) -> int:
        """Number of batches of a complete epoch on one rank, also in a resumed epoch."""
        return (len(self._bounds) - 1) // self._world

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the iterators created from now on."""
        self._epoch = epoch

    def resume(self, epoch: int, batch: int) -> None:
        """Let every iterator of this epoch start at this batch."""
        self._epoch = self._resumed_epoch = epoch
        self._resumed_batch = batch

    def __iter__(self) -> Iterator[Any]:
        epoch = self._epoch
        random = np.random.default_rng((self._seed, epoch))
        order = self._draw(random)  # [N]
        random.shuffle(order)
        for first, end in pairwise(self._pool_bounds) if self._sort else ():
            pool = order[first:end]
            order[first:end] = pool[np.lexsort([lengths[pool] for lengths in self._sort_keys])]
        if self._choices is not None:
            order = self._choices.draw(random)[order].astype(np.int32)
        steps = random.permutation(len(self))
        start = self._resumed_batch if epoch == self._resumed_epoch else 0
        for step in steps[start:]:
            number = step * self._world + self._rank
            batch = order[self._bounds[number] : self._bounds[number + 1]]
            yield batch[np.argsort(-self._target_lengths[batch], kind="stable")].tolist()

    def _draw(self, random: np.random.Generator) -> NDArray[np.int32]:
        """Return the positions of the pairs of an epoch, [N], in the order of the parts."""
        if not self._draws or self._choices is not None:
            return np.arange(len(self._target_lengths), dtype=np.int32)
        parts, start = [], 0
        for size, count in self._draws:
            part = np.arange(start, start + size, dtype=np.int32)
            parts += [np.tile(part, count // size), random.permutation(part)[: count % size]]
            start += size
        return np.concatenate(parts)


class _Choices(NamedTuple):
    """For each of the N pairs of an epoch, the pairs of similar length that it is one of.

    Attributes:
        pairs: positions of all pairs, sorted by length within each part, [N].
        first: position in `pairs` of the first choice, [N].
        size: number of choices, [N].
    """

    pairs: NDArray[np.int64]
    first: NDArray[np.int64]
    size: NDArray[np.int64]

    def longest(self, *lengths: Lengths) -> list[Lengths]:
        """Return for each kind of length the largest one of the choices, [N]."""
        ranges = np.stack([self.first, self.first + self.size], axis=1).ravel()
        return [np.maximum.reduceat(np.append(each[self.pairs], 0), ranges)[::2] for each in lengths]

    def draw(self, random: np.random.Generator) -> NDArray[np.int64]:
        """Return the position of one of the choices, [N]."""
        drawn: NDArray[np.int64] = self.pairs[self.first + random.integers(self.size)]
        return drawn


def _choices(source_lengths: Lengths, target_lengths: Lengths, draws: Sequence[tuple[int, int]]) -> _Choices:
    """Return as many choices of each part as `draws` says; the choices of all pairs differ by at most one."""
    start, parts = 0, []
    for size, count in draws:
        part = slice(start, start + size)
        whole = np.tile(np.arange(size), count // size)  # every pair
        ends = np.linspace(0, size, count % size + 1).astype(np.int64)
        first, choices = np.append(whole, ends[:-1]), np.append(np.ones_like(whole), np.diff(ends))
        parts.append(
            (start + np.lexsort((target_lengths[part], source_lengths[part])), start + first, choices)
        )
        start += size
    return _Choices(*map(np.concatenate, zip(*parts, strict=True)))


class FixedBatches(SequentialSampler):
    """Batches in one fixed order. With `overfit_batches`, Lightning keeps a sampler of this class."""

    def __init__(self, batches: Sequence[list[int]]) -> None:
        super().__init__(batches)
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


class EvaluationBatchSampler(FixedBatches):
    """Batches of one process for evaluation: sorted by length, every pair exactly once over all processes.

    Sums over processes are exact, because no pair is repeated. The pairs of one input are in one batch. The
    batches are dealt to `count` shards in turn, the same number to each, or one to each of the first shards
    if there are fewer inputs. They depend on `count`, but not on which process has which shards.

    Args:
        lengths: S of each pair, [N].
        inputs: position of the first pair with the same input, for each pair, [N].
        size: maximum number of inputs per batch.
        shards: the shards of this process.
        count: number of shards of all processes.
    """

    def __init__(
        self, lengths: Lengths, inputs: Lengths, *, size: int, shards: Sequence[int] = (0,), count: int = 1
    ) -> None:
        first, numbers, pairs = np.unique(inputs, return_inverse=True, return_counts=True)
        order = np.argsort(lengths[first], kind="stable")
        world = min(count, len(first))
        ends = np.cumsum(_even_batch_sizes(len(first), size=size, world=world))[:-1]
        places = np.argsort(order)[numbers]  # of the input of each pair in the order
        batches = np.split(np.argsort(places, kind="stable"), np.cumsum(pairs[order])[ends - 1])
        super().__init__([batch.tolist() for number, batch in enumerate(batches) if number % count in shards])


def shards_of(rank: int, world: int, count: int) -> range:
    """Return the shards, of `count`, of one of `world` processes: consecutive ones, at least one."""
    return range(-(-rank * count // world), -(-(rank + 1) * count // world))


def _even_batch_sizes(total: int, *, size: int, world: int) -> NDArray[np.int64]:
    """Return batch sizes that differ by at most one; their number is a multiple of `world`.

    All sizes are at most `size`, unless `size` is 1 and `total` is not a multiple of `world`.
    """
    if total < world:
        raise UserError(
            f"{total} pairs are too few for {world} processes or shards. Use fewer of them or more data"
        )
    steps = min(-(-total // (size * world)), total // world)
    count = steps * world
    return np.full(count, total // count) + (np.arange(count) < total % count)


def _token_batch_sizes(
    source_lengths: Lengths, target_lengths: Lengths, *, size: int, world: int
) -> NDArray[np.int64]:
    """Return the sizes of batches of the sorted split with at most `size` padded tokens each."""
    order = np.lexsort((target_lengths, source_lengths))
    sizes: list[int] = []
    count = longest_target = 0
    for source, target in zip(source_lengths[order].tolist(), target_lengths[order].tolist(), strict=True):
        longest_target = max(longest_target, target)
        # The pairs are sorted by source length, so `source` is the longest of the batch
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
                f"batching.batch_size={size} tokens gives {len(sizes)} batches of one pair, which cannot be "
                f"divided evenly among {world} processes. Increase batching.batch_size"
            )
        sizes[largest : largest + 1] = [half, sizes[largest] - half]
    return np.array(sizes)
