"""The fifteen formal-language tasks of Delétang et al. (2023, "Neural Networks and the Chomsky Hierarchy").

A task is a function that draws a source of an exact length and returns it with its target, both as tokens.
The definitions are those of the paper and its code, with three differences: an answer ends with EOS instead
of a termination token and padding; lengths for which the code defines arbitrary answers are not drawn; and
`odds_first` follows the paper, whose code outputs the even positions first.
"""

import random
from collections.abc import Callable
from math import isqrt
from typing import Literal, NamedTuple

from attnlab.data.corpus import Corpus, Pair
from attnlab.errors import UserError
from attnlab.settings import Count, Lengths, Size

MODULUS = 5
"""Of the arithmetic tasks; also the length of the cycle and the number of symbols to sort."""

Example = tuple[list[str], list[str]]
"""Tokens of the source and the target."""


class Formal(NamedTuple):
    """A formal-language task with its shortest length."""

    draw: Callable[[random.Random, int], Example]  # draws an example from a generator and a length
    shortest: int = 1  # smallest length for which the task is defined


def _bits(rng: random.Random, length: int) -> list[str]:
    return rng.choices("01", k=length)


def _even_pairs(rng: random.Random, length: int) -> Example:
    """1 if the number of neighbours 01 and 10 is odd, which is so if the first and the last symbol differ."""
    source = _bits(rng, length)
    return source, [str(int(source[0] != source[-1]))]


def _parity_check(rng: random.Random, length: int) -> Example:
    source = _bits(rng, length)
    return source, [str(source.count("1") % 2)]


def _cycle_navigation(rng: random.Random, length: int) -> Example:
    """Position on a cycle after steps of -1, 0 and 1 from position 0; the steps are written 0, 1 and 2."""
    steps = rng.choices(range(3), k=length)
    return [str(step) for step in steps], [str(sum(step - 1 for step in steps) % MODULUS)]


def _modular_arithmetic(rng: random.Random, length: int) -> Example:
    """Sums and products of numbers; an even length is reduced by one."""
    source = [str(rng.randrange(MODULUS))]
    terms = [int(source[0])]  # of the sum: products with their signs
    for _ in range((length - 1) // 2):
        operator, number = rng.choice("+-*"), rng.randrange(MODULUS)
        source += [operator, str(number)]
        if operator == "*":
            terms[-1] *= number
        else:
            terms.append(number if operator == "+" else -number)
    return source, [str(sum(terms) % MODULUS)]


def _expression(rng: random.Random, length: int, operators: str) -> tuple[list[str], int]:
    """Draw an expression with brackets, and its value modulo 5."""
    if length < 5:  # d, -d, (d) or (-d)
        digit = rng.randrange(MODULUS)
        signed = [*"-" * (length % 2 == 0), str(digit)]
        value = (-digit if length % 2 == 0 else digit) % MODULUS
        return (["(", *signed, ")"] if length > 2 else signed), value
    left_length = rng.randint(1, length - 4)
    left, first = _expression(rng, left_length, operators)
    right, second = _expression(rng, length - left_length - 3, operators)
    operator = rng.choice(operators)
    value = {"+": first + second, "-": first - second, "*": first * second}[operator]
    return ["(", *left, operator, *right, ")"], value % MODULUS


def _modular_arithmetic_brackets(rng: random.Random, length: int) -> Example:
    source, value = _expression(rng, length, "+-*")
    return source, [str(value)]


def _solve_equation(rng: random.Random, length: int) -> Example:
    """Value of x in an expression without products: x stands for the first digit from a random place on."""
    source, value = _expression(rng, length - 2, "+-")
    place = rng.randrange(len(source))
    while not source[place].isdigit():
        place = (place + 1) % len(source)
    answer, source[place] = source[place], "x"
    return [*source, "=", str(value)], [answer]


def _stack_manipulation(rng: random.Random, length: int) -> Example:
    """A stack, bottom first, and actions on it; the answer is the final stack, top first."""
    stack = _bits(rng, rng.randint(1, max(1, length - 1)))
    actions = rng.choices(("pop", "push0", "push1"), k=length - len(stack))
    final = [*stack]
    for action in actions:
        if action == "pop":
            del final[-1:]
        else:
            final.append(action[-1])
    return [*stack, *actions], final[::-1]


def _reverse_string(rng: random.Random, length: int) -> Example:
    source = _bits(rng, length)
    return source, source[::-1]


def _duplicate_string(rng: random.Random, length: int) -> Example:
    source = _bits(rng, length)
    return source, source * 2


def _missing_duplicate(rng: random.Random, length: int) -> Example:
    """Symbol of a string, presented twice, that is replaced by "?" once; an odd length ends with a blank."""
    source = _bits(rng, length // 2) * 2
    place = rng.randrange(len(source))
    answer, source[place] = source[place], "?"
    return [*source, *"_" * (length % 2)], [answer]


def _odds_first(rng: random.Random, length: int) -> Example:
    """s₁ s₃ s₅ … s₂ s₄ s₆ …."""
    source = _bits(rng, length)
    return source, source[::2] + source[1::2]


def _draw_operands(rng: random.Random, length: int, operator: str) -> tuple[list[str], int, int]:
    """Draw two positive binary numbers, least significant bit first, that are `length` - 1 bits together."""
    first_length = rng.randint(1, length - 2)
    sizes = (first_length, length - 1 - first_length)
    first, second = (rng.randint(1, 2**size - 1) for size in sizes)
    return [*_little_endian(first, sizes[0]), operator, *_little_endian(second, sizes[1])], first, second


def _little_endian(number: int, size: int = 0) -> list[str]:
    return [*f"{number:b}".zfill(size)[::-1]]


def _binary_addition(rng: random.Random, length: int) -> Example:
    source, first, second = _draw_operands(rng, length, "+")
    return source, _little_endian(first + second)


def _binary_multiplication(rng: random.Random, length: int) -> Example:
    source, first, second = _draw_operands(rng, length, "*")
    return source, _little_endian(first * second)


def _compute_sqrt(rng: random.Random, length: int) -> Example:
    """Integer part of the square root, in ⌈length / 2⌉ bits; numbers start with the most significant bit."""
    number = rng.randint(1, 2**length - 1)
    return [*f"{number:b}".zfill(length)], [*f"{isqrt(number):b}".zfill((length + 1) // 2)]


def _bucket_sort(rng: random.Random, length: int) -> Example:
    source = [str(symbol) for symbol in rng.choices(range(MODULUS), k=length)]
    return source, sorted(source)


FormalTask = Literal[
    "even_pairs",
    "parity_check",
    "cycle_navigation",
    "modular_arithmetic",
    "modular_arithmetic_brackets",
    "solve_equation",
    "stack_manipulation",
    "reverse_string",
    "duplicate_string",
    "missing_duplicate",
    "odds_first",
    "binary_addition",
    "binary_multiplication",
    "compute_sqrt",
    "bucket_sort",
]
"""Values of `data.task`: four regular languages, four deterministic context-free ones, seven others."""

TASKS: dict[str, Formal] = {
    "even_pairs": Formal(_even_pairs),
    "parity_check": Formal(_parity_check),
    "cycle_navigation": Formal(_cycle_navigation),
    "modular_arithmetic": Formal(_modular_arithmetic),
    "modular_arithmetic_brackets": Formal(_modular_arithmetic_brackets),
    "solve_equation": Formal(_solve_equation, shortest=3),
    "stack_manipulation": Formal(_stack_manipulation),
    "reverse_string": Formal(_reverse_string),
    "duplicate_string": Formal(_duplicate_string),
    "missing_duplicate": Formal(_missing_duplicate, shortest=2),
    "odds_first": Formal(_odds_first),
    "binary_addition": Formal(_binary_addition, shortest=3),
    "binary_multiplication": Formal(_binary_multiplication, shortest=3),
    "compute_sqrt": Formal(_compute_sqrt),
    "bucket_sort": Formal(_bucket_sort),
}
"""The tasks by name."""


def generate_formal(
    *,
    task: FormalTask = "reverse_string",
    train_lengths: Lengths = (1, 40),
    longer_lengths: Lengths = (41, 500),
    train_size: Size = 10_000,
    val_size: Size = 1_000,
    test_size: Count = 1_000,
    seed: Count = 0,
) -> Corpus:
    """Generate sources with uniform lengths, and their targets.

    The test set `same` has the lengths of training, `longer` the longer ones. Sources can be in several
    splits, as in the paper: there are too few short ones for disjoint splits.

    Args:
        task: one of `TASKS`.
        train_lengths: [shortest, longest] training source, both included; lengths for which the task is not
            defined are left out.
        longer_lengths: [shortest, longest] source of the test set `longer`.
        train_size: number of training pairs. The paper draws new ones for every step.
        val_size: number of validation pairs.
        test_size: number of pairs of each test set.
        seed: seed of the generators; runs with different seeds share their data.
    """
    draw, minimum = TASKS[task]

    def split(name: str, setting: str, lengths: Lengths, size: int) -> list[Pair]:
        shortest, longest = max(lengths[0], minimum), lengths[1]
        if not 1 <= shortest <= longest:
            raise UserError(
                f"data.{setting}={[*lengths]}: must be [shortest,longest], with lengths of at least "
                f"{minimum} for data.task={task}"
            )
        rng = random.Random(f"{seed} {task} {name}")
        examples = (draw(rng, rng.randint(shortest, longest)) for _ in range(size))
        return [Pair(" ".join(source), " ".join(target)) for source, target in examples]

    return Corpus(
        train=split("train", "train_lengths", train_lengths, train_size),
        val=split("val", "train_lengths", train_lengths, val_size),
        test={
            "same": split("same", "train_lengths", train_lengths, test_size),
            "longer": split("longer", "longer_lengths", longer_lengths, test_size),
        },
    )
