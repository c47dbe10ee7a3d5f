"""Tasks with exact answers, checked against examples and by evaluators without code of the generators."""

import re
from itertools import chain
from typing import get_args

import pytest
from attnlab_parts.algorithmic import TASKS, AlgorithmicTask, generate_algorithmic
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.corpus import Pair
from attnlab.data.datasets import synthetic
from attnlab.errors import UserError


@pytest.mark.parametrize(
    ("task", "source", "target", "positions"),
    [
        ("ngram_copy", "5 3 4 7 3 4 6 ? 3 4", "7 3 4 6", [3, 4, 5, 6]),  # the first occurrence of 3 4
        ("selective_copy", "_ 5 _ _ 3 _", "5 3", [1, 4]),
        ("addition", "9 7 0 + 3 5", "1 0 0 5", None),
        ("reversed_addition", "0 7 9 + 5 3", "5 0 0 1", None),
        ("dyck", "(1 (2 )2 (3 (1", ")1 )3 )1", [4, 3, 0]),
        ("modular", "2 + 3 * 4 - 1", "3", None),  # 13 mod 5
        ("modular", "0 - 1", "4", None),
        ("stack", "4 6 pop push 5 pop pop pop push 7", "7", [9]),
        ("stack", "4 6 push 5 pop", "6 4", [1, 0]),
    ],
)
def test_answer_of_an_example(task: str, source: str, target: str, positions: list[int] | None) -> None:
    pair = TASKS[task].solve(source.split(), 5)
    assert pair.target == target
    links = None if positions is None else tuple((place, number) for number, place in enumerate(positions))
    assert pair.alignment == links


def solve(task: str, source: str, symbols: int) -> str:
    """Solve a task by another method than the generator's."""
    match task:
        case "ngram_copy":
            text, _, key = source.partition(" ? ")
            return f" {text} ".partition(f" {key} ")[2].strip()
        case "selective_copy":
            return " ".join(source.replace("_", " ").split())
        case "addition":
            return " ".join(str(eval(source.replace(" ", ""))))
        case "reversed_addition":
            return str(eval("".join(reversed(source.replace(" ", "")))))[::-1].replace("", " ").strip()
        case "dyck":
            rest = source
            while re.search(r"\((\d+) \)\1", rest):
                rest = " ".join(re.sub(r"\((\d+) \)\1", "", rest).split())
            return " ".join(reversed(rest.split())).replace("(", ")")
        case "modular":
            return str(eval(source) % symbols)
        case _:  # stack: cancel a symbol and the pop after it, then drop pops of the empty stack
            rest = source.replace("push ", "")
            while re.search(r"\d+ pop", rest):
                rest = " ".join(re.sub(r"\d+ pop", "", rest, count=1).split())
            return " ".join(reversed(rest.replace("pop", "").split()))


@settings(max_examples=40)
@given(seed=st.integers(0, 1000), task=st.sampled_from([*TASKS][4:]), symbols=st.integers(2, 9))
def test_targets_links_and_disjoint_splits(seed: int, task: str, symbols: int) -> None:
    corpus = generate_algorithmic(
        task=task,
        symbols=symbols,
        train_lengths=[4, 9],
        val_lengths=[4, 9],
        test_lengths=[4, 9],
        longer_lengths=[10, 15],
        train_size=12,
        val_size=4,
        test_size=4,
        seed=seed,
    )
    for pair in chain(*corpus.splits.values()):
        assert pair.target == solve(task, pair.source, symbols)
        check_links(task, pair)
    names = [{pair.source for pair in pairs} for pairs in corpus.splits.values()]
    assert list(corpus.splits) == ["train", "val", "test/same", "test/longer"]
    assert len(set().union(*names)) == sum(map(len, names))


def check_links(task: str, pair: Pair) -> None:
    """Check that each target token is linked to a source token that determines it."""
    if task in ("addition", "reversed_addition", "modular"):
        assert pair.alignment is None
        return
    source, target = pair.source.split(), pair.target.split()
    assert pair.alignment is not None
    assert sorted({number for _, number in pair.alignment}) == list(range(len(target)))
    for place, number in pair.alignment:
        assert source[place].replace("(", ")") == target[number]


def test_lengths_below_the_shortest_of_the_task_are_rejected() -> None:
    with pytest.raises(UserError, match=r"data.val_lengths=\[2, 4\]: .* with 3 <= shortest"):
        generate_algorithmic(task="ngram_copy", val_lengths=[2, 4], train_size=5, val_size=5, test_size=5)


def test_tasks_of_attnlab_are_the_same() -> None:
    sizes = {"train_size": 20, "val_size": 5, "test_size": 5}
    for task in TASKS.keys() & synthetic.TASKS.keys():
        assert generate_algorithmic(task=task, **sizes) == synthetic.generate_task(task=task, **sizes)
    assert set(get_args(AlgorithmicTask)) == set(TASKS)
