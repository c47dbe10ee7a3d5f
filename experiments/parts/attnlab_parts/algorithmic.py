"""Tasks with exact answers beyond those of `attnlab.data.datasets.synthetic`, which are part of these.

A task is a row in `TASKS`: how a source is drawn, and its exact answer.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, Unpack

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datasets import synthetic
from attnlab.data.datasets.synthetic import (
    Positions,
    SplitShapes,
    Tokens,
    aligned_pair,
    draw_splits,
    draw_symbols,
)
from attnlab.settings import Size

BLANK = "_"
QUERY = "?"
PUSH, POP = "push", "pop"
OPERATORS = ("+", "-", "*")
BASE = 10


class Task(NamedTuple):
    """A task, as two functions on tokens."""

    # draws a source from a generator, the length, and the number of different symbols
    draw: Callable[[random.Random, int, int], list[str]]
    # computes the pair from the source, and the number of different symbols
    solve: Callable[[Tokens, int], Pair]
    shortest: int = 1  # smallest length for which the task is defined


def _align(positions: Callable[[Tokens], Positions], source: Tokens, symbols: int) -> Pair:
    return aligned_pair(source, positions(source))


def _pair(source: Tokens, target: Sequence[str]) -> Pair:
    return Pair(" ".join(source), " ".join(target))


def _draw_with_key(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a sequence, then a query with two neighbours in it that are not at its end."""
    sequence = draw_symbols(rng, length, symbols)
    start = rng.randrange(length - 2)
    return [*sequence, QUERY, *sequence[start : start + 2]]


def _copy_after_key(source: Tokens, symbols: int) -> Pair:
    """Copy what follows the first occurrence of the queried pair, up to the end of the sequence."""
    length = source.index(QUERY)
    start = next(place for place in range(length) if source[place : place + 2] == source[-2:])
    return aligned_pair(source, [(place,) for place in range(start + 2, length)])


def _draw_with_blanks(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a sequence, and as many blanks at random places in it."""
    sequence = iter(draw_symbols(rng, length, symbols))
    places = {*rng.sample(range(2 * length), k=length)}
    return [next(sequence) if place in places else BLANK for place in range(2 * length)]


def _copy_without_blanks(source: Tokens, symbols: int) -> Pair:
    return aligned_pair(source, [(place,) for place, token in enumerate(source) if token != BLANK])


def _draw_sum(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw two decimal numbers, of which one at random has `length` digits and the other one at most that."""
    lengths = [length, rng.randint(1, length)]
    rng.shuffle(lengths)
    first, second = (rng.randrange(BASE ** (n - 1) if n > 1 else 0, BASE**n) for n in lengths)
    return [*str(first), "+", *str(second)]


def _add(source: Tokens, symbols: int) -> Pair:
    first, second = "".join(source).split("+")
    return _pair(source, [*str(int(first) + int(second))])


def _draw_reversed_sum(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a sum whose numbers start with the least significant digit."""
    first, second = "".join(_draw_sum(rng, length, symbols)).split("+")
    return [*first[::-1], "+", *second[::-1]]


def _add_reversed(source: Tokens, symbols: int) -> Pair:
    first, second = "".join(source).split("+")
    return _pair(source, [*str(int(first[::-1]) + int(second[::-1]))[::-1]])


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


def _close_brackets(source: Tokens, symbols: int) -> Pair:
    """Close the open brackets, the last one first; a closing bracket is aligned to its opening bracket."""
    opened: list[int] = []
    for position, token in enumerate(source):
        if token.startswith("("):
            opened.append(position)
        else:
            opened.pop()
    opened.reverse()
    pair = aligned_pair(source, [(position,) for position in opened])
    return replace(pair, target=pair.target.replace("(", ")"))


def _draw_formula(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw `length` numbers below `symbols` with an operator between any two."""
    formula = [str(rng.randrange(symbols))]
    for _ in range(length - 1):
        formula += [rng.choice(OPERATORS), str(rng.randrange(symbols))]
    return formula


def _evaluate_modulo(source: Tokens, symbols: int) -> Pair:
    """Evaluate products before sums, modulo the number of symbols."""
    total, product, sign = 0, int(source[0]), 1
    for operator, number in zip(source[1::2], source[2::2], strict=True):
        if operator == "*":
            product = product * int(number) % symbols
        else:
            total += sign * product
            product, sign = int(number), 1 if operator == "+" else -1
    return _pair(source, [str((total + sign * product) % symbols)])


def _draw_stack(rng: random.Random, length: int, symbols: int) -> list[str]:
    """Draw a stack, bottom first, and actions, together `length`, that leave a symbol on the stack."""
    while True:
        size = rng.randint(1, length)
        source = draw_symbols(rng, size, symbols)
        left = size
        for _ in range(length - size):
            push = rng.random() < 0.5
            source += [PUSH, *draw_symbols(rng, 1, symbols)] if push else [POP]
            left = left + 1 if push else max(left - 1, 0)
        if left:
            return source


def _run_stack(source: Tokens, symbols: int) -> Pair:
    """Return the final stack, top first; taking from an empty stack changes nothing."""
    stack: list[int] = []
    for position, token in enumerate(source):
        if token == POP:
            del stack[-1:]
        elif token != PUSH:
            stack.append(position)
    return aligned_pair(source, [(place,) for place in reversed(stack)])


AlgorithmicTask = Literal[
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

TASKS: dict[str, Task] = {
    **{name: Task(draw_symbols, partial(_align, positions)) for name, positions in synthetic.TASKS.items()},
    "ngram_copy": Task(_draw_with_key, _copy_after_key, shortest=3),
    "selective_copy": Task(_draw_with_blanks, _copy_without_blanks),
    "addition": Task(_draw_sum, _add),
    "reversed_addition": Task(_draw_reversed_sum, _add_reversed),
    "dyck": Task(_draw_brackets, _close_brackets),
    "modular": Task(_draw_formula, _evaluate_modulo),
    "stack": Task(_draw_stack, _run_stack),
}
"""The tasks by name."""


def generate_algorithmic(
    *, task: AlgorithmicTask = "addition", symbols: Size = 47, **shapes: Unpack[SplitShapes]
) -> Corpus:
    """Generate inputs with uniform lengths, and the target of each, with its alignment if there is one.

    Args:
        task: one of `TASKS`.
        symbols: number of distinct symbols; of "dyck" the types of brackets, of "modular" the modulus.
        **shapes: of the splits.
    """
    draw, solve, shortest = TASKS[task]

    def example(rng: random.Random, length: int) -> Pair:
        return solve(draw(rng, length, symbols), symbols)

    return draw_splits(example, shortest=shortest, **shapes)
