import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.corpus import Pair
from attnlab.data.datasets.synthetic import generate_task
from attnlab.errors import UserError


def small(**options):
    settings = {"train_size": 300, "val_size": 40, "test_size": 50} | options
    return generate_task(**({"task": "reverse"} | settings))


def sources(pairs: list[Pair]) -> set[str]:
    return {pair.source for pair in pairs}


def solve(task: str, source: str) -> str:
    """Solve a task one symbol at a time, independently of the generator."""
    remaining = [int(symbol) for symbol in source.split()]
    answer = []
    while remaining:
        position = {"copy": 0, "reverse": -1, "sort": remaining.index(min(remaining))}[task]
        answer.append(remaining.pop(position))
    return " ".join(str(symbol) for symbol in answer)


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_target_is_the_solution_of_the_source(task: str):
    corpus = small(task=task)
    assert [len(part) for part in (corpus.train, corpus.val, corpus.test)] == [300, 40, 50]
    for pair in corpus.train + corpus.val + corpus.test:
        assert pair.target == solve(task, pair.source)


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


@given(seed=st.integers(0, 100), task=st.sampled_from(["copy", "reverse", "sort"]))
def test_links_connect_equal_symbols(seed: int, task: str):
    for pair in small(task=task, symbols=9, train_size=20, val_size=2, test_size=2, seed=seed).train:
        source, target = pair.source.split(), pair.target.split()
        assert all(source[i] == target[j] for i, j in pair.alignment)
        assert {j for _, j in pair.alignment} == {i for i, _ in pair.alignment} == set(range(len(source)))


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


@given(
    seed=st.integers(0, 10_000),
    symbols=st.integers(2, 5),
    longest=st.integers(3, 6),
    task=st.sampled_from(["copy", "sort"]),
)
def test_splits_are_disjoint(seed: int, symbols: int, longest: int, task: str):
    shape = {f"{name}_lengths": [3, longest] for name in ("train", "val", "test")}
    sizes = {"train_size": 40, "val_size": 2, "test_size": 2}
    corpus = generate_task(task=task, symbols=symbols, **shape, **sizes, seed=seed)
    train, val, test = map(sources, (corpus.train, corpus.val, corpus.test))
    assert not train & val
    assert not train & test
    assert not val & test


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
        ({"test_size": -1}, "data.test_size=-1"),
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
