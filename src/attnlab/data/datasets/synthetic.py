"""Synthetic tasks on number sequences with known targets and gold alignments.

Symbols are decimal numbers from 3 on, so that each symbol is its own id in a vocabulary that starts with the
special tokens PAD, SOS and EOS.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from attnlab.data.corpus import Corpus, Pair
from attnlab.errors import UserError

FIRST_SYMBOL = 3

Positions = Sequence[Sequence[int]]
"""For each target symbol, the source positions that it is aligned to; the first one holds the symbol."""


def _sort_positions(sequence: Sequence[int]) -> Positions:
    """Return the source positions of the sorted symbols; equal symbols share all their positions."""
    positions: dict[int, list[int]] = {}
    for position, symbol in enumerate(sequence):
        positions.setdefault(symbol, []).append(position)
    return [positions[symbol] for symbol in sorted(sequence)]


TASKS: dict[str, Callable[[Sequence[int]], Positions]] = {
    "copy": lambda sequence: [(position,) for position in range(len(sequence))],
    "reverse": lambda sequence: [(position,) for position in reversed(range(len(sequence)))],
    "sort": _sort_positions,
}
"""Maps a task to the function that computes the source positions of its target symbols."""


def generate(
    *,
    task: str,
    symbols: int = 47,
    train_lengths: Sequence[int] = (3, 12),
    val_lengths: Sequence[int] = (3, 12),
    test_lengths: Sequence[int] = (3, 12),
    train_size: int = 10_000,
    val_size: int = 1_000,
    test_size: int = 2_000,
    seed: int = 0,
) -> Corpus:
    """Generate sequences with uniform lengths and symbols, and the target and alignment of each.

    No sequence occurs in two splits; within a split a sequence may repeat. Each split has its own random
    generator and excludes the sequences of the splits generated before it (test, then validation, then
    training). Settings of the training split therefore do not change the other two, and settings of the
    validation split do not change the test split.

    Args:
        task: "copy", "reverse" or "sort".
        symbols: number of distinct symbols.
        train_lengths: [shortest, longest] training sequence, both included.
        val_lengths: [shortest, longest] validation sequence.
        test_lengths: [shortest, longest] test sequence.
        train_size: number of training sequences.
        val_size: number of validation sequences.
        test_size: number of test sequences.
        seed: seed of the generators.

    Raises:
        UserError: if a setting is invalid, or there are too few sequences of some length for disjoint splits.
    """
    if task not in TASKS:
        raise UserError(f"Unknown data.task {task!r}. Choose from: {', '.join(TASKS)}")
    if symbols < 1:
        raise UserError(f"data.symbols={symbols} must be at least 1")
    taken: set[tuple[int, ...]] = set()
    splits: dict[str, list[Pair]] = {}
    for name, lengths, size in (
        ("test", test_lengths, test_size),
        ("val", val_lengths, val_size),
        ("train", train_lengths, train_size),
    ):
        shortest, longest = _check_lengths(name, lengths)
        if size < 0:
            raise UserError(f"data.{name}_size={size} must be at least 0")
        if size:
            _check_availability(name, range(shortest, longest + 1), symbols, taken)
        rng = random.Random(f"{seed} {name}")
        sequences = [_draw(rng, rng.randint(shortest, longest), symbols, taken) for _ in range(size)]
        splits[name] = [_make_pair(sequence, TASKS[task](sequence)) for sequence in sequences]
        taken.update(sequences)
    return Corpus(train=splits["train"], val=splits["val"], test=splits["test"])


def _check_lengths(name: str, lengths: Sequence[int]) -> tuple[int, int]:
    """Return the shortest and longest length, or raise `UserError` if they are not a valid range."""
    match lengths:
        case [int(shortest), int(longest)] if 1 <= shortest <= longest:
            return shortest, longest
    raise UserError(
        f"data.{name}_lengths={lengths}: must be [shortest,longest] with 1 <= shortest <= longest"
    )


def _check_availability(name: str, lengths: range, symbols: int, taken: set[tuple[int, ...]]) -> None:
    """Raise `UserError` unless a tenth of the sequences of each length is unused, so that draws succeed."""
    for length, count in sorted(Counter(map(len, taken)).items()):
        if length in lengths and 10 * (symbols**length - count) < symbols**length:
            raise UserError(
                f"data.{name}_lengths={[lengths.start, lengths.stop - 1]}: the other splits contain {count} "
                f"of the {symbols**length} sequences of length {length}. Increase data.symbols or the "
                "shortest lengths, or reduce the size of the splits"
            )


def _draw(rng: random.Random, length: int, symbols: int, taken: set[tuple[int, ...]]) -> tuple[int, ...]:
    """Draw a sequence that is not in an earlier split."""
    while True:
        sequence = tuple(rng.choices(range(FIRST_SYMBOL, FIRST_SYMBOL + symbols), k=length))
        if sequence not in taken:
            return sequence


def _make_pair(sequence: Sequence[int], positions: Positions) -> Pair:
    """Return the pair of a source sequence and its aligned target."""
    return Pair(
        source=_to_text(sequence),
        target=_to_text([sequence[aligned[0]] for aligned in positions]),
        alignment=tuple((source, target) for target, aligned in enumerate(positions) for source in aligned),
    )


def _to_text(sequence: Sequence[int]) -> str:
    return " ".join(map(str, sequence))
