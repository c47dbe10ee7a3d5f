"""Generated inputs of a synthetic task in disjoint splits, with known targets and gold alignments."""

from __future__ import annotations

import random
from collections.abc import Sequence

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.disjoint_splits import DisjointSplits
from attnlab.data.datasets.synthetic_tasks import TASKS, TaskName
from attnlab.errors import UserError
from attnlab.settings import Count, Lengths, Size


def generate(
    *,
    task: TaskName,
    symbols: Size = 47,
    train_lengths: Lengths = (3, 12),
    val_lengths: Lengths = (3, 12),
    test_lengths: Lengths = (3, 12),
    longer_lengths: Lengths | None = None,
    train_size: Size = 10_000,
    val_size: Size = 1_000,
    test_size: Count = 2_000,
    seed: Count = 0,
) -> Corpus:
    """Generate inputs with uniform lengths, and the target and alignment of each.

    The splits are drawn as `DisjointSplits`: test, then validation, then training.

    Args:
        task: one of `TASKS`.
        symbols: number of distinct symbols; of "dyck" the types of brackets, of "modular" the modulus.
        train_lengths: [shortest, longest] training sequence, both included.
        val_lengths: [shortest, longest] validation sequence.
        test_lengths: [shortest, longest] test sequence.
        longer_lengths: [shortest, longest] sequence of the test set `longer`; the other one is then `same`.
            None for a single test set.
        train_size: number of training sequences.
        val_size: number of validation sequences.
        test_size: number of sequences of each test set.
        seed: seed of the generators; runs with different seeds share their data.

    Raises:
        UserError: if a setting is invalid, or there are too few inputs of some length for disjoint splits.
    """
    if task not in TASKS:
        raise UserError(f"Unknown data.task {task!r}. Choose from: {', '.join(TASKS)}")
    if symbols < 1:
        raise UserError(f"data.symbols={symbols} must be at least 1")
    splits = DisjointSplits(seed)

    def example(rng: random.Random, length: int) -> Pair:
        source = TASKS[task].draw(rng, length, symbols)
        target, positions = TASKS[task].solve(source, symbols)
        alignment = None
        if positions is not None:
            alignment = tuple(
                (place, number) for number, aligned in enumerate(positions) for place in aligned
            )
        return Pair(source=" ".join(source), target=" ".join(target), alignment=alignment)

    def split(name: str, lengths: Sequence[int], size: int) -> list[Pair]:
        shortest, longest = _check_lengths(name, lengths, task)
        return splits.draw(name, size, lambda rng: rng.randint(shortest, longest), example)

    test = split("test", test_lengths, test_size)
    longer = None if longer_lengths is None else split("longer", longer_lengths, test_size)
    val = split("val", val_lengths, val_size)
    train = split("train", train_lengths, train_size)
    return Corpus(train=train, val=val, test=test if longer is None else {"same": test, "longer": longer})


def _check_lengths(split: str, lengths: Sequence[int], task: TaskName) -> tuple[int, int]:
    """Return the shortest and longest length, or raise `UserError` if they are not a valid range."""
    minimum = TASKS[task].shortest
    match lengths:
        case [int(shortest), int(longest)] if minimum <= shortest <= longest:
            return shortest, longest
    raise UserError(
        f"data.{split}_lengths={lengths}: must be [shortest,longest] with {minimum} <= shortest <= longest"
        + (f" for data.task={task}" if minimum > 1 else "")
    )
