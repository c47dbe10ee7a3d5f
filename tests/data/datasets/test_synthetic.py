"""Synthetic tasks, checked by hand and by evaluators without code of the generators."""

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.datasets.synthetic import TASKS, generate_task
from attnlab.errors import UserError


def small(**options):
    return generate_task(**{"train_size": 300, "val_size": 40, "test_size": 50, **options})


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


def test_default_sizes_and_distributions():
    corpus = generate_task(task="reverse")
    assert [len(part) for part in (corpus.train, corpus.val, corpus.test)] == [10_000, 1_000, 2_000]
    lengths = Counter(len(pair.source.split()) for pair in corpus.train)
    assert set(lengths) == set(range(3, 13))
    assert all(850 < count < 1150 for count in lengths.values())  # mean 1,000, standard deviation 30
    symbols = Counter(symbol for pair in corpus.train for symbol in pair.source.split())
    assert set(symbols) == {str(number) for number in range(3, 50)}
    assert all(1_380 < count < 1_820 for count in symbols.values())  # mean 75,000 / 47 = 1,596, deviation 40


def test_lengths_of_each_split():
    corpus = small(train_lengths=[2, 4], val_lengths=[5, 5], test_lengths=[13, 24])
    train, val, test = ({len(pair.source.split()) for pair in pairs} for pairs in corpus.splits.values())
    assert (train, val) == ({2, 3, 4}, {5})
    assert 13 <= min(test) <= max(test) <= 24


def test_splits_do_not_depend_on_splits_drawn_later():
    default = small()
    longer = small(train_size=400, train_lengths=[3, 20])
    assert (longer.val, longer.test) == (default.val, default.test)
    wider = small(val_size=60, val_lengths=[3, 20])
    assert wider.test == default.test


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


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), symbols=st.sampled_from([2, 5, 12]))
def test_targets_links_and_disjoint_splits(seed: int, task: str, symbols: int) -> None:
    lengths = {f"{name}_lengths": [4, 9] for name in ("train", "val", "test")}
    sizes = {"train_size": 12, "val_size": 4, "test_size": 4}
    corpus = generate_task(task=task, symbols=symbols, longer_lengths=[10, 15], seed=seed, **lengths, **sizes)
    solve = {
        "copy": lambda symbols: symbols,
        "reverse": lambda symbols: symbols[::-1],
        "sort": lambda symbols: sorted(symbols, key=int),  # 9 before 10
        "duplicate": lambda symbols: symbols * 2,
    }
    for pair in chain(*corpus.splits.values()):
        source, target = pair.source.split(), pair.target.split()
        assert target == solve[task](source)
        assert sorted({number for _, number in pair.alignment}) == list(range(len(target)))
        assert all(source[place] == target[number] for place, number in pair.alignment)
    names = [{pair.source for pair in pairs} for pairs in corpus.splits.values()]
    assert list(corpus.splits) == ["train", "val", "test/same", "test/longer"]
    assert len(set().union(*names)) == sum(map(len, names))


def test_further_test_set_leaves_the_other_splits_unchanged() -> None:
    sizes = {"train_size": 50, "val_size": 10, "test_size": 10}
    plain, longer = (generate_task(task="copy", longer_lengths=extra, **sizes) for extra in (None, [13, 24]))
    assert plain.splits["test"] == longer.splits["test/same"]
    assert (plain.train, plain.val) == (longer.train, longer.val)
