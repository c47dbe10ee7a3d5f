"""Synthetic tasks, checked by hand and by evaluators without code of the generators."""

import re
import time
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.corpus import Pair
from attnlab.data.datasets.synthetic import TASKS, generate_task
from attnlab.errors import UserError


def small(**options):
    return generate_task(**{"train_size": 300, "val_size": 40, "test_size": 50, **options})


def sources(pairs: list[Pair]) -> set[str]:
    return {pair.source for pair in pairs}


@pytest.mark.parametrize(
    ("task", "symbols", "links"),
    [
        ("copy", "5 3 5 4", [{0}, {1}, {2}, {3}]),
        ("reverse", "5 3 5 4", [{3}, {2}, {1}, {0}]),
        ("sort", "5 3 5 4", [{1}, {3}, {0, 2}, {0, 2}]),  # 3 4 5 5: both 5 are linked
    ],
)
def test_alignments_of_an_example(task: str, symbols: str, links: list[set[int]]):
    shape = {f"{name}_lengths": [4, 4] for name in ("train", "val", "test")}
    pairs = small(task=task, symbols=3, train_size=1000, val_size=1, test_size=1, **shape).train
    (alignment,) = {pair.alignment for pair in pairs if pair.source == symbols}
    sources_of = [{source for source, target in alignment if target == position} for position in range(4)]
    assert sources_of == links


def test_sorting_is_numeric():
    pairs = small(task="sort").train
    mixed = [p.target.split() for p in pairs if "9" in p.target.split() and "10" in p.target.split()]
    assert mixed
    assert all(target.index("9") < target.index("10") for target in mixed)


def test_default_sizes_and_speed():
    start = time.process_time()
    corpus = generate_task(task="reverse")
    assert time.process_time() - start < 1.0  # 0.1 s is usual
    assert [len(part) for part in (corpus.train, corpus.val, corpus.test)] == [10_000, 1_000, 2_000]
    assert corpus.metrics == ()

    lengths = Counter(len(pair.source.split()) for pair in corpus.train)
    assert set(lengths) == set(range(3, 13))
    assert all(850 < count < 1150 for count in lengths.values())  # mean 1,000, standard deviation 30
    symbols = Counter(symbol for pair in corpus.train for symbol in pair.source.split())
    assert set(symbols) == {str(number) for number in range(3, 50)}
    assert all(1_380 < count < 1_820 for count in symbols.values())  # mean 75,000 / 47 = 1,596, deviation 40


def test_lengths_of_each_split():
    corpus = small(train_lengths=[2, 4], val_lengths=[5, 5], test_lengths=[13, 24])
    lengths = [
        {len(pair.source.split()) for pair in part} for part in (corpus.train, corpus.val, corpus.test)
    ]
    assert lengths[:2] == [{2, 3, 4}, {5}]
    assert min(lengths[2]) >= 13
    assert max(lengths[2]) <= 24


def test_corpus_depends_only_on_the_seed():
    assert small(seed=4) == small(seed=4)
    first, second = small(seed=4), small(seed=5)
    assert not sources(first.test) & sources(second.test)


def test_splits_do_not_depend_on_splits_drawn_later():
    default = small()
    longer = small(train_size=400, train_lengths=[3, 20])
    assert (longer.val, longer.test) == (default.val, default.test)
    wider = small(val_size=60, val_lengths=[3, 20])
    assert wider.test == default.test


def test_longer_test_sequences_do_not_change_training_and_validation():
    # Sequences of 13 and more symbols cannot collide with training and validation sequences
    default, extrapolating = small(symbols=47), small(symbols=47, test_lengths=[13, 24])
    assert extrapolating.train == default.train
    assert extrapolating.val == default.val


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_lengths": [0, 3]}, r"data.test_lengths=\[0, 3\]: must be"),
        ({"val_lengths": [5, 4]}, r"data.val_lengths=\[5, 4\]: must be"),
        ({"train_lengths": [5]}, r"data.train_lengths=\[5\]: must be"),
        ({"train_lengths": 12}, "data.train_lengths=12: must be"),
        ({"train_lengths": [3, 4.5]}, r"data.train_lengths=\[3, 4.5\]: must be"),
        ({"train_size": 0}, "training split is empty"),
        ({"val_size": 0}, "validation split is empty"),
        ({"symbols": 1}, r"the val split: .* all or nearly all inputs of the form \d+"),
        ({"symbols": 2, "test_size": 5_000}, r"the val split: .* all inputs of the form 3|nearly all inputs"),
    ],
)
def test_invalid_settings_are_rejected(options: dict, message: str):
    with pytest.raises(UserError, match=message):
        small(**options)


def test_test_split_may_be_empty():
    assert small(test_size=0).test == []


@pytest.mark.parametrize(
    ("task", "source", "target", "positions"),
    [
        ("duplicate", "5 3 4", "5 3 4 5 3 4", [0, 1, 2, 0, 1, 2]),
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
    answer = TASKS[task].solve(source.split(), 5)
    assert " ".join(answer.target) == target
    assert answer.positions == (None if positions is None else [(position,) for position in positions])


def solve(task: str, source: str, symbols: int) -> str:
    """Solve a task by another method than the generator's."""
    match task:
        case "copy":
            return source
        case "reverse":
            return " ".join(reversed(source.split()))
        case "sort":
            return " ".join(sorted(source.split(), key=int))
        case "duplicate":
            return f"{source} {source}"
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


@settings(max_examples=60)
@given(seed=st.integers(0, 1000), task=st.sampled_from([*TASKS]), symbols=st.integers(2, 9))
def test_targets_links_and_disjoint_splits(seed: int, task: str, symbols: int) -> None:
    corpus = generate_task(
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


def test_further_test_set_leaves_the_other_splits_unchanged() -> None:
    sizes = {"train_size": 50, "val_size": 10, "test_size": 10}
    plain, longer = (generate_task(task="stack", longer_lengths=extra, **sizes) for extra in (None, [13, 24]))
    assert plain.splits["test"] == longer.splits["test/same"]
    assert (plain.train, plain.val) == (longer.train, longer.val)


def test_lengths_below_the_shortest_of_the_task_are_rejected() -> None:
    with pytest.raises(
        UserError, match=r"data.val_lengths=\[2, 4\]: .* 3 <= shortest .* data.task=ngram_copy"
    ):
        generate_task(task="ngram_copy", val_lengths=[2, 4], train_size=5, val_size=5, test_size=5)
