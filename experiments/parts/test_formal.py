"""The tasks of Delétang et al. against examples of the paper and independent solutions."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import get_args

import pytest
from attnlab_parts.formal import TASKS, FormalTask, generate_formal

from attnlab.errors import UserError


def value(expression: str) -> str:
    """Evaluate an expression modulo 5 by Python."""
    return str(eval(expression, {"__builtins__": {}}) % 5)


def number(bits: str) -> int:
    """Read a binary number, least significant bit first."""
    return int(bits[::-1], 2)


def solve_stack(source: str) -> str:
    stack = ""
    for token in source.split():
        stack = stack[1:] if token == "pop" else token[-1] + stack
    return stack


def restored(source: str) -> str:
    """Return the symbol whose replacement for "?" gives a string twice."""
    text = source.rstrip("_")
    half = len(text) // 2
    (answer,) = [bit for bit in "01" if (whole := text.replace("?", bit))[:half] == whole[half:]]
    return answer


def solve_for_x(source: str) -> str:
    left, right = source.split("=")
    (answer,) = [digit for digit in "01234" if value(left.replace("x", digit)) == right]
    return answer


def joined(solve: Callable[[str], str]) -> Callable[[str], str]:
    """Solve a source without spaces."""
    return lambda source: solve(source.replace(" ", ""))


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "even_pairs": joined(lambda s: str(sum(a != b for a, b in pairwise(s)) % 2)),
    "parity_check": joined(lambda s: str(sum(map(int, s)) % 2)),
    "cycle_navigation": joined(lambda s: str((s.count("2") - s.count("0")) % 5)),
    "modular_arithmetic": joined(value),
    "modular_arithmetic_brackets": joined(value),
    "solve_equation": joined(solve_for_x),
    "stack_manipulation": solve_stack,
    "reverse_string": joined(lambda s: "".join(reversed(s))),
    "duplicate_string": joined(lambda s: s + s),
    "missing_duplicate": joined(restored),
    "odds_first": joined(lambda s: "".join(s[i] for i in sorted(range(len(s)), key=lambda i: (i % 2, i)))),
    "binary_addition": joined(lambda s: f"{sum(map(number, s.split('+'))):b}"[::-1]),
    "binary_multiplication": joined(lambda s: f"{number(s.split('*')[0]) * number(s.split('*')[1]):b}"[::-1]),
    "bucket_sort": joined(lambda s: "".join(digit * s.count(digit) for digit in "01234")),
}


@pytest.mark.parametrize("task", SOLUTIONS)
def test_answers_equal_an_independent_solution(task: FormalTask) -> None:
    corpus = generate_formal(task=task, train_lengths=(1, 9), train_size=300, val_size=1, test_size=1)
    for pair in corpus.train:
        assert pair.target.replace(" ", "") == SOLUTIONS[task](pair.source), pair.source


def test_square_root_is_rounded_down_with_half_of_the_bits() -> None:
    corpus = generate_formal(
        task="compute_sqrt", train_lengths=(1, 9), train_size=300, val_size=1, test_size=1
    )
    for pair in corpus.train:
        root, square = (int(text.replace(" ", ""), 2) for text in (pair.target, pair.source))
        assert root**2 <= square < (root + 1) ** 2
        assert len(pair.target.split()) == -(-len(pair.source.split()) // 2)


@pytest.mark.parametrize(
    ("task", "source", "target"),
    [
        ("even_pairs", "0 0 1 1 1 0", "0"),  # one 01 and one 10
        ("cycle_navigation", "2 0 1 0 0", "3"),  # 1 - 1 + 0 - 1 - 1 = -2
        ("modular_arithmetic", "1 + 2 * 3", "2"),
        ("modular_arithmetic", "1 - 1 - 1", "4"),
        ("stack_manipulation", "0 1 1 0 push1 pop pop", "110"),
        ("stack_manipulation", "1 1 0 pop pop pop", ""),
        ("missing_duplicate", "0 1 1 0 0 ? 1 0", "1"),
        ("odds_first", "0 0 1 1 0 1 0 1", "01000111"),
        ("binary_addition", "0 0 1 + 0 1 1 0 1", "01011"),  # 4 + 22 = 26
        ("binary_multiplication", "0 0 1 * 0 1 1 0 1", "0001101"),  # 4 * 22 = 88
    ],
)
def test_independent_solutions_agree_with_the_examples_of_the_paper(
    task: str, source: str, target: str
) -> None:
    assert SOLUTIONS[task](source) == target


@pytest.mark.parametrize("task", TASKS)
def test_sources_have_the_drawn_length(task: str) -> None:
    rng = random.Random(7)
    for length in (*range(TASKS[task].shortest, 12), 41, 500):
        source, _ = TASKS[task].draw(rng, length)
        expected = length - (length + 1) % 2 if task == "modular_arithmetic" else length
        assert len(source) == expected


def test_there_are_fifteen_tasks() -> None:
    assert len(TASKS) == 15
    assert set(get_args(FormalTask)) == set(TASKS)


def test_lengths_of_the_splits() -> None:
    corpus = generate_formal(train_size=400, val_size=50, test_size=400)
    lengths = {name: {len(pair.source.split()) for pair in pairs} for name, pairs in corpus.splits.items()}
    assert min(lengths["train"]) == 1
    assert max(lengths["train"]) == max(lengths["test/same"]) == 40
    assert 41 <= min(lengths["test/longer"]) < 60
    assert 480 < max(lengths["test/longer"]) <= 500
    assert corpus == generate_formal(train_size=400, val_size=50, test_size=400)
    assert corpus.train != generate_formal(train_size=400, val_size=50, test_size=400, seed=1).train
    assert corpus.train[:50] != corpus.val


def test_lengths_for_which_a_task_is_not_defined_are_left_out() -> None:
    corpus = generate_formal(task="binary_addition", train_lengths=(1, 4), train_size=50, test_size=1)
    assert {len(pair.source.split()) for pair in corpus.train} == {3, 4}
    with pytest.raises(
        UserError, match=r"data.train_lengths=\[1, 2\]: .* at least 3 for data.task=binary_addition"
    ):
        generate_formal(task="binary_addition", train_lengths=(1, 2))
