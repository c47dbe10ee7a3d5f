"""Synthetic tasks: generated sources in disjoint splits, with known targets and gold alignments.

A task is a row in `TASKS`: how a source is drawn, and its exact answer, as lists of tokens. Symbols are
decimal numbers from 3 on, so that each symbol is its own id in a vocabulary that starts with the special
tokens PAD, SOS and EOS.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets.disjoint_splits import DisjointSplits
from attnlab.errors import UserError
from attnlab.settings import Count, Lengths, Size

FIRST_SYMBOL = 3
BLANK = "_"
QUERY = "?"
PUSH, POP = "push", "pop"
OPERATORS = ("+", "-", "*")
BASE = 10

Tokens = Sequence[str]


class Answer(NamedTuple):
    """Target of a source."""

    target: list[str]  # target tokens
    # for each target token, the source positions that it is aligned to, of which the first one determines it;
    # None if no such alignment exists
    positions: list[Sequence[int]] | None


class Task(NamedTuple):
    """A synthetic task, as two functions on tokens."""

    # draws a source from a generator, the length, and the number of different symbols
    draw: Callable[[random.Random, int, int], list[str]]
    # computes the answer from the source, and the number of different symbols
    solve: Callable[[Tokens, int], Answer]
    shortest: int = 1  # smallest length for which the task is defined


def _draw_symbols(rng: random.Random, length: int, symbols: int) -> list[str]:
    return [str(symbol) for symbol in rng.choices(range(FIRST_SYMBOL, FIRST_SYMBOL + symbols), k=length)]


def _aligned(source: Tokens, positions: Sequence[Sequence[int]]) -> Answer:
    """Return the answer whose tokens are those at the first of the aligned positions."""
    return Answer([source[aligned[0]] for aligned in positions], list(positions))


def _copy(source: Tokens, symbols: int) -> Answer:
    return _aligned(source, [(place,) for place in range(len(source))])


def _reverse(source: Tokens, symbols: int) -> Answer:
    return _aligned(source, [(place,) for place in reversed(range(len(source)))])


def _sort(source: Tokens, symbols: int) -> Answer:
    """Sort by number; equal symbols share all their positions."""
    positions: dict[str, list[int]] = {}
    for position, symbol in enumerate(source):
        positions.setdefault(symbol, []).append(position)
    return _aligned(source, [positions[symbol] for symbol in sorted(source, key=int)])


def _duplicate(source: Tokens, symbols: int) -> Answer:
    return _aligned(source, [(place,) for place in range(len(source))] * 2)


def _draw_with_key(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a sequence, then a query with two neighbours in it that are not at its end."""
    sequence = _draw_symbols(rng, length, symbols)
    start = rng.randrange(length - 2)
    return [*sequence, QUERY, *sequence[start : start + 2]]


def _copy_after_key(source: Tokens, symbols: int) -> Answer:
    """Copy what follows the first occurrence of the queried pair, up to the end of the sequence."""
    length = source.index(QUERY)
    start = next(place for place in range(length) if source[place : place + 2] == source[-2:])
    return _aligned(source, [(place,) for place in range(start + 2, length)])


def _draw_with_blanks(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a sequence, and as many blanks at random places in it."""
    sequence = iter(_draw_symbols(rng, length, symbols))
    places = {*rng.sample(range(2 * length), k=length)}
    return [next(sequence) if place in places else BLANK for place in range(2 * length)]


def _copy_without_blanks(source: Tokens, symbols: int) -> Answer:
    return _aligned(source, [(place,) for place, token in enumerate(source) if token != BLANK])


def _draw_sum(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw two decimal numbers, of which one at random has `length` digits and the other one at most that."""
    lengths = [length, rng.randint(1, length)]
    rng.shuffle(lengths)
    first, second = (rng.randrange(BASE ** (n - 1) if n > 1 else 0, BASE**n) for n in lengths)
    return [*str(first), "+", *str(second)]


def _add(source: Tokens, symbols: int) -> Answer:
    first, second = "".join(source).split("+")
    return Answer([*str(int(first) + int(second))], None)


def _draw_reversed_sum(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a sum whose numbers start with the least significant digit."""
    first, second = "".join(_draw_sum(rng, length, symbols)).split("+")
    return [*first[::-1], "+", *second[::-1]]


def _add_reversed(source: Tokens, symbols: int) -> Answer:
    first, second = "".join(source).split("+")
    return Answer([*str(int(first[::-1]) + int(second[::-1]))[::-1]], None)


def _draw_brackets(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a prefix of a word of the Dyck language in which at least one bracket is open."""
    while True:
        source: list[str] = []
        opened: list[str] = []
        for _ in range(length):
            if opened and rng.random() < 0.5:
                source.append(f"){opened.pop()}")
            else:
                opened.append(str(rng.randint(1, symbols)))
                source.append(f"({opened[-1]}")
        if opened:
            return source


def _close_brackets(source: Tokens, symbols: int) -> Answer:
    """Close the open brackets, the last one first; a closing bracket is aligned to its opening bracket."""
    opened: list[int] = []
    for position, token in enumerate(source):
        if token.startswith("("):
            opened.append(position)
        else:
            opened.pop()
    opened.reverse()
    return Answer([source[position].replace("(", ")") for position in opened], [(p,) for p in opened])


def _draw_formula(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw `length` numbers below `symbols` with an operator between any two."""
    formula = [str(rng.randrange(symbols))]
    for _ in range(length - 1):
        formula += [rng.choice(OPERATORS), str(rng.randrange(symbols))]
    return formula


def _evaluate_modulo(source: Tokens, symbols: int) -> Answer:
    """Evaluate products before sums, modulo the number of symbols."""
    total, product, sign = 0, int(source[0]), 1
    for operator, number in zip(source[1::2], source[2::2], strict=True):
        if operator == "*":
            product = product * int(number) % symbols
        else:
            total += sign * product
            product, sign = int(number), 1 if operator == "+" else -1
    return Answer([str((total + sign * product) % symbols)], None)


def _draw_stack(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a stack, bottom first, and actions, together `length`, that leave a symbol on the stack."""
    while True:
        size = rng.randint(1, length)
        source = _draw_symbols(rng, size, symbols)
        left = size
        for _ in range(length - size):
            push = rng.random() < 0.5
            source += [PUSH, *_draw_symbols(rng, 1, symbols)] if push else [POP]
            left = left + 1 if push else max(left - 1, 0)
        if left:
            return source


def _run_stack(source: Tokens, symbols: int) -> Answer:
    """Return the final stack, top first; taking from an empty stack changes nothing."""
    stack: list[int] = []
    for position, token in enumerate(source):
        if token == POP:
            del stack[-1:]
        elif token != PUSH:
            stack.append(position)
    return _aligned(source, [(place,) for place in reversed(stack)])


TaskName = Literal[
    "copy",
    "reverse",
    "sort",
    "duplicate",
    "ngram_copy",
    "selective_copy",
    "addition",
    "reversed_addition",
    "dyck",
    "modular",
    "stack",
]
"""Values of `data.task`."""

TASKS: dict[TaskName, Task] = {
    "copy": Task(_draw_symbols, _copy),
    "reverse": Task(_draw_symbols, _reverse),
    "sort": Task(_draw_symbols, _sort),
    "duplicate": Task(_draw_symbols, _duplicate),
    "ngram_copy": Task(_draw_with_key, _copy_after_key, shortest=3),
    "selective_copy": Task(_draw_with_blanks, _copy_without_blanks),
    "addition": Task(_draw_sum, _add),
    "reversed_addition": Task(_draw_reversed_sum, _add_reversed),
    "dyck": Task(_draw_brackets, _close_brackets),
    "modular": Task(_draw_formula, _evaluate_modulo),
    "stack": Task(_draw_stack, _run_stack),
}
"""The tasks by name."""


def generate_task(
    *,
    task: TaskName = "reverse",
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
    """
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
