"""Synthetic tasks on sequences of symbols, in disjoint splits, with known targets and gold alignments."""

import random
from collections.abc import Callable, Sequence
from typing import Literal, TypedDict, Unpack

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.splitting import DrawShape, draw_disjoint
from attnlab.errors import UserError
from attnlab.settings import Count, Lengths, Size

FIRST_SYMBOL = 3

Tokens = Sequence[str]
Positions = Sequence[Sequence[int]]
"""For each target token, the source positions that it is aligned to; the first one determines it."""


def draw_symbols(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a sequence in which each of the different symbols is equally likely at each position."""
    return [str(symbol) for symbol in rng.choices(range(FIRST_SYMBOL, FIRST_SYMBOL + symbols), k=length)]


def _sort(source: Tokens) -> Positions:
    """Sort by number; equal symbols share all their positions."""
    positions: dict[str, list[int]] = {}
    for position, symbol in enumerate(source):
        positions.setdefault(symbol, []).append(position)
    return [positions[symbol] for symbol in sorted(source, key=int)]


TaskName = Literal["copy", "reverse", "sort", "duplicate"]  # Values of `data.task`

TASKS: dict[TaskName, Callable[[Tokens], Positions]] = {
    "copy": lambda source: [(place,) for place in range(len(source))],
    "reverse": lambda source: [(place,) for place in reversed(range(len(source)))],
    "sort": _sort,
    "duplicate": lambda source: [(place,) for place in range(len(source))] * 2,
}
"""The tasks by name: the positions of the target tokens in a source."""


class SplitShapes(TypedDict, total=False):
    """Lengths and sizes of the splits of generated sequences.

    Args:
        train_lengths: [shortest, longest] training sequence, both included.
        val_lengths: [shortest, longest] validation sequence.
        test_lengths: [shortest, longest] test sequence.
        longer_lengths: [shortest, longest] sequence of the test set `longer`; the other one is then `same`.
            None for a single test set.
        train_size: number of training sequences.
        val_size: number of validation sequences.
        test_size: number of sequences of each test set.
        seed: seed of the generators; runs with different seeds share their data.
    """

    train_lengths: Lengths
    val_lengths: Lengths
    test_lengths: Lengths
    longer_lengths: Lengths | None
    train_size: Size
    val_size: Size
    test_size: Count
    seed: Count


def generate_task(*, task: TaskName = "reverse", symbols: Size = 47, **shapes: Unpack[SplitShapes]) -> Corpus:
    """Generate inputs with uniform lengths, and the target and alignment of each.

    Args:
        task: one of `TASKS`.
        symbols: number of distinct symbols.
        **shapes: of the splits.
    """

    def example(rng: random.Random, length: int) -> Pair:
        source = draw_symbols(rng, length, symbols)
        return aligned_pair(source, TASKS[task](source))

    return draw_splits(example, **shapes)


def aligned_pair(source: Tokens, positions: Positions) -> Pair:
    """Return the pair whose target tokens are those at the first of the aligned positions."""
    links = ((place, number) for number, aligned in enumerate(positions) for place in aligned)
    target = " ".join(source[aligned[0]] for aligned in positions)
    return Pair(" ".join(source), target, alignment=tuple(links))


def draw_splits(
    example: Callable[[random.Random, int], Pair],
    *,
    shortest: int = 1,
    train_lengths: Lengths = (3, 12),
    val_lengths: Lengths = (3, 12),
    test_lengths: Lengths = (3, 12),
    longer_lengths: Lengths | None = None,
    train_size: int = 10_000,
    val_size: int = 1_000,
    test_size: int = 2_000,
    seed: int = 0,
) -> Corpus:
    """Draw examples with uniform lengths by `draw_disjoint`: test, then validation, then training.

    Args:
        example: draws an example of a length.
        shortest: smallest length for which the task is defined.

    The other arguments are those of `SplitShapes`.
    """

    def split(name: str, lengths: Sequence[int], size: int) -> tuple[int, DrawShape[int]]:
        match lengths:
            case [int(first), int(last)] if shortest <= first <= last:
                return size, lambda rng: rng.randint(first, last)
        raise UserError(
            f"data.{name}_lengths={lengths}: must be [shortest,longest] with {shortest} <= shortest <= "
            "longest"
        )

    lengths = {"test": test_lengths, "longer": longer_lengths, "val": val_lengths, "train": train_lengths}
    sizes = {"test": test_size, "longer": test_size, "val": val_size, "train": train_size}
    splits = {name: split(name, each, sizes[name]) for name, each in lengths.items() if each is not None}
    drawn = draw_disjoint(splits, example, seed=seed)
    test = {"same": drawn["test"], "longer": drawn["longer"]} if longer_lengths else drawn["test"]
    return Corpus(train=drawn["train"], val=drawn["val"], test=test)
