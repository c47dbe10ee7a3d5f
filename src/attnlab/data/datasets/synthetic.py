"""Tasks over number sequences, whose right answer and right alignment are known.

Symbols are the numbers from 3 on, written in decimal, so that a symbol is its own id in a vocabulary whose
first three ids are the special tokens: padding, start and end.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from attnlab.data.corpus import Corpus, Pair
from attnlab.errors import UserError

FIRST = 3
"""The smallest symbol."""

Places = Sequence[Sequence[int]]
"""For each target symbol, the places in the source that hold it and that it may as well be read from."""


def _sorted_places(sequence: Sequence[int]) -> Places:
    """Equal symbols cannot be told apart, so each comes from the places of all of them."""
    places: dict[int, list[int]] = {}
    for place, symbol in enumerate(sequence):
        places.setdefault(symbol, []).append(place)
    return [places[symbol] for symbol in sorted(sequence)]


TASKS: dict[str, Callable[[Sequence[int]], Places]] = {
    "copy": lambda sequence: [(place,) for place in range(len(sequence))],
    "reverse": lambda sequence: [(place,) for place in reversed(range(len(sequence)))],
    "sort": _sorted_places,
}
"""A task says where in the source each target symbol stands: this gives the target and its alignment."""


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
    """Draw sequences whose lengths and symbols are uniform, and solve and align the task for each.

    Lengths are `[shortest, longest]`, both included. No sequence of one split occurs in another; inside a
    split a sequence may occur twice. Every split has a random generator of its own and avoids the splits
    drawn before it, test first, then validation, then training: so other training settings leave validation
    and test as they were, and other validation settings leave the test.

    Raises `UserError` for an unknown task, impossible lengths or sizes, and where the earlier splits leave
    hardly a sequence of some length to draw.
    """
    if task not in TASKS:
        raise UserError(f"data.task={task} is unknown: choose one of {', '.join(TASKS)}")
    if symbols < 1:
        raise UserError(f"data.symbols={symbols}: a sequence needs at least 1 symbol to draw from")
    taken: set[tuple[int, ...]] = set()
    splits: dict[str, list[Pair]] = {}
    for name, lengths, size in (
        ("test", test_lengths, test_size),
        ("val", val_lengths, val_size),
        ("train", train_lengths, train_size),
    ):
        shortest, longest = _check_lengths(name, lengths)
        if size < 0:
            raise UserError(f"data.{name}_size={size}: a split cannot have fewer than 0 sequences")
        if size:
            _check_room(name, range(shortest, longest + 1), symbols, taken)
        rng = random.Random(f"{seed} {name}")
        sequences = [_draw(rng, rng.randint(shortest, longest), symbols, taken) for _ in range(size)]
        splits[name] = [_pair(sequence, TASKS[task](sequence)) for sequence in sequences]
        taken.update(sequences)
    return Corpus(train=splits["train"], val=splits["val"], test=splits["test"])


def _check_lengths(name: str, lengths: Sequence[int]) -> tuple[int, int]:
    """The two ends of a range of lengths."""
    match lengths:
        case [int(shortest), int(longest)] if 1 <= shortest <= longest:
            return shortest, longest
    raise UserError(
        f"data.{name}_lengths={lengths}: give [shortest,longest], two whole numbers of which the first is at "
        "least 1 and the second no smaller"
    )


def _check_room(name: str, lengths: range, symbols: int, taken: set[tuple[int, ...]]) -> None:
    """Demand that a tenth of the sequences of every length is free, so that drawing one takes few tries."""
    for length, count in sorted(Counter(map(len, taken)).items()):
        if length in lengths and 10 * (symbols**length - count) < symbols**length:
            raise UserError(
                f"data.{name}_lengths={[lengths.start, lengths.stop - 1]}: the splits drawn before hold "
                f"{count} of the {symbols**length} sequences of length {length}: raise "
                "data.symbols or the shortest lengths, or ask for smaller splits"
            )


def _draw(rng: random.Random, length: int, symbols: int, taken: set[tuple[int, ...]]) -> tuple[int, ...]:
    """A sequence no earlier split holds."""
    while True:
        sequence = tuple(rng.choices(range(FIRST, FIRST + symbols), k=length))
        if sequence not in taken:
            return sequence


def _pair(sequence: Sequence[int], places: Places) -> Pair:
    return Pair(
        source=_write(sequence),
        target=_write([sequence[own[0]] for own in places]),
        alignment=tuple((source, target) for target, own in enumerate(places) for source in own),
    )


def _write(sequence: Sequence[int]) -> str:
    return " ".join(map(str, sequence))
