import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.corpus import Pair
from attnlab.data.datasets.synthetic import generate
from attnlab.errors import UserError


def small(**options):
    settings = {"train_size": 300, "val_size": 40, "test_size": 50} | options
    return generate(**({"task": "reverse"} | settings))


def sources(pairs: list[Pair]) -> set[str]:
    return {pair.source for pair in pairs}


def solve(task: str, source: str) -> str:
    """The right answer, by other means than the generator's: one symbol after another."""
    remaining = [int(symbol) for symbol in source.split()]
    answer = []
    while remaining:
        place = {"copy": 0, "reverse": -1, "sort": remaining.index(min(remaining))}[task]
        answer.append(remaining.pop(place))
    return " ".join(str(symbol) for symbol in answer)


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_the_target_is_the_solved_source(task: str):
    corpus = small(task=task)
    assert [len(part) for part in (corpus.train, corpus.val, corpus.test)] == [300, 40, 50]
    for pair in corpus.train + corpus.val + corpus.test:
        assert pair.target == solve(task, pair.source)


@pytest.mark.parametrize(
    ("task", "symbols", "links"),
    [
        ("copy", "5 3 5 4", [{0}, {1}, {2}, {3}]),
        ("reverse", "5 3 5 4", [{3}, {2}, {1}, {0}]),
        ("sort", "5 3 5 4", [{1}, {3}, {0, 2}, {0, 2}]),  # 3 4 5 5: either 5 will do
    ],
)
def test_alignments_by_hand(task: str, symbols: str, links: list[set[int]]):
    shape = {f"{name}_lengths": [4, 4] for name in ("train", "val", "test")}
    pairs = small(task=task, symbols=3, train_size=1000, val_size=1, test_size=1, **shape).train
    (alignment,) = {pair.alignment for pair in pairs if pair.source == symbols}
    found = [{source for source, target in alignment if target == place} for place in range(4)]
    assert found == links


@given(seed=st.integers(0, 100), task=st.sampled_from(["copy", "reverse", "sort"]))
def test_every_target_symbol_is_linked_to_itself_in_the_source(seed: int, task: str):
    for pair in small(task=task, symbols=9, train_size=20, val_size=2, test_size=2, seed=seed).train:
        source, target = pair.source.split(), pair.target.split()
        assert all(source[i] == target[j] for i, j in pair.alignment)
        assert {j for _, j in pair.alignment} == {i for i, _ in pair.alignment} == set(range(len(source)))


def test_sorting_is_by_number_and_not_by_letter():
    pairs = small(task="sort").train
    mixed = [p.target.split() for p in pairs if "9" in p.target.split() and "10" in p.target.split()]
    assert mixed
    assert all(target.index("9") < target.index("10") for target in mixed)


def test_the_defaults_are_the_published_ones_and_quick():
    start = time.process_time()
    corpus = generate(task="reverse")
    assert time.process_time() - start < 1.0  # a tenth of that on an ordinary machine
    assert [len(part) for part in (corpus.train, corpus.val, corpus.test)] == [10_000, 1_000, 2_000]
    assert corpus.scores == ()

    lengths = Counter(len(pair.source.split()) for pair in corpus.train)
    assert set(lengths) == set(range(3, 13))
    assert all(
        850 < count < 1150 for count in lengths.values()
    )  # 1,000 each, give or take 5 deviations of 30
    symbols = Counter(symbol for pair in corpus.train for symbol in pair.source.split())
    assert set(symbols) == {str(number) for number in range(3, 50)}
    assert all(1_380 < count < 1_820 for count in symbols.values())  # 75,000 / 47 = 1,596, deviation 40


@given(
    seed=st.integers(0, 10_000),
    symbols=st.integers(2, 5),
    longest=st.integers(3, 6),
    task=st.sampled_from(["copy", "sort"]),
)
def test_splits_are_disjoint(seed: int, symbols: int, longest: int, task: str):
    shape = {f"{name}_lengths": [3, longest] for name in ("train", "val", "test")}
    corpus = generate(task=task, symbols=symbols, **shape, train_size=40, val_size=2, test_size=2, seed=seed)
    train, val, test = map(sources, (corpus.train, corpus.val, corpus.test))
    assert not train & val
    assert not train & test
    assert not val & test


def test_lengths_are_set_per_split():
    corpus = small(train_lengths=[2, 4], val_lengths=[5, 5], test_lengths=[13, 24])
    found = [{len(pair.source.split()) for pair in part} for part in (corpus.train, corpus.val, corpus.test)]
    assert found[:2] == [{2, 3, 4}, {5}]
    assert min(found[2]) >= 13
    assert max(found[2]) <= 24


def test_the_seed_decides_everything():
    assert small(seed=4) == small(seed=4)
    first, second = small(seed=4), small(seed=5)
    assert not sources(first.test) & sources(second.test)


def test_a_split_stays_when_one_drawn_after_it_changes():
    default = small()
    longer = small(train_size=400, train_lengths=[3, 20])
    assert (longer.val, longer.test) == (default.val, default.test)
    wider = small(val_size=60, val_lengths=[3, 20])
    assert wider.test == default.test


def test_extrapolation_leaves_what_is_trained_on_as_it_was():
    # nothing of length 13 and more is in the way of training and validation
    default, extrapolating = small(symbols=47), small(symbols=47, test_lengths=[13, 24])
    assert extrapolating.train == default.train
    assert extrapolating.val == default.val


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "rotate"}, "data.task=rotate is unknown: choose one of copy, reverse, sort"),
        ({"symbols": 0}, "data.symbols=0"),
        ({"test_lengths": [0, 3]}, r"data.test_lengths=\[0, 3\]: give"),
        ({"val_lengths": [5, 4]}, r"data.val_lengths=\[5, 4\]: give"),
        ({"train_lengths": [5]}, r"data.train_lengths=\[5\]: give"),
        ({"train_lengths": 12}, "data.train_lengths=12: give"),
        ({"train_lengths": [3, 4.5]}, r"data.train_lengths=\[3, 4.5\]: give"),
        ({"test_size": -1}, "data.test_size=-1"),
        ({"train_size": 0}, "training split is empty"),
        ({"val_size": 0}, "validation split is empty"),
        ({"symbols": 1}, r"data.val_lengths=\[3, 12\].* hold 1 of the 1 sequences of length 3"),
        ({"symbols": 2, "test_size": 5_000}, r"hold 8 of the 8 sequences of length 3"),
    ],
)
def test_impossible_demands_are_refused_at_once(options: dict, message: str):
    with pytest.raises(UserError, match=message):
        small(**options)


def test_the_test_may_be_empty():
    assert small(test_size=0).test == []
