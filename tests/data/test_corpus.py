from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.corpus import Corpus, Pair, split
from attnlab.errors import UserError


def numbered(count: int) -> list[Pair]:
    return [Pair(str(i), f"target {i}") for i in range(count)]


def test_a_split_without_groups_meets_the_fractions_exactly():
    train, val, test = split(numbered(50), val_fraction=0.1, test_fraction=0.2, seed=3)
    assert (len(train), len(val), len(test)) == (35, 5, 10)


def test_a_split_loses_nothing_and_is_shuffled():
    pairs = numbered(50)
    parts = split(pairs, val_fraction=0.1, test_fraction=0.2, seed=3)
    assert Counter(chain(*parts)) == Counter(pairs)
    assert all(part != sorted(part) for part in parts)


def test_a_split_is_a_function_of_the_seed():
    first, again, other = (split(numbered(50), val_fraction=0.2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_fraction_of_zero_leaves_the_test_empty_and_any_other_fills_it():
    assert split(numbered(4), val_fraction=0.01, seed=0)[2] == []
    assert [len(part) for part in split(numbered(4), val_fraction=0.01, test_fraction=0.01, seed=0)] == [
        2,
        1,
        1,
    ]


def test_groups_of_equal_size_meet_the_fractions_exactly():
    pairs = numbered(60)
    train, val, test = split(
        pairs, val_fraction=0.1, test_fraction=0.2, seed=0, groups=[i // 3 for i in range(60)]
    )
    assert (len(train), len(val), len(test)) == (42, 6, 12)


def test_a_group_too_big_for_a_small_split_goes_to_training():
    # 10 pairs, of which the validation asks for 2: the group of 8 would miss that by 6
    for seed in range(10):
        train, val, _ = split(numbered(10), val_fraction=0.2, seed=seed, groups=["big"] * 8 + ["a", "b"])
        assert (len(train), len(val)) == (8, 2)


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=60),
    st.floats(0.05, 0.45),
    st.floats(0, 0.45),
    st.integers(0, 5),
)
def test_a_group_is_never_torn(groups: list[int], val_fraction: float, test_fraction: float, seed: int):
    pairs = numbered(len(groups))
    parts = split(pairs, val_fraction=val_fraction, test_fraction=test_fraction, seed=seed, groups=groups)
    assert Counter(chain(*parts)) == Counter(pairs)
    found = [{groups[int(pair.source)] for pair in part} for part in parts]
    assert sum(map(len, found)) == len(set(groups))
    sizes = Counter(groups)
    for part, fraction in zip(parts[1:], (val_fraction, test_fraction), strict=True):
        room = (max(1, round(len(pairs) * fraction)) if fraction else 0) - len(part)
        assert -room <= max(sizes.values()) / 2  # a group twice as large as the room it finds is not taken
        assert all(sizes[group] >= 2 * room for group in found[0])  # and no smaller one is left out


@pytest.mark.parametrize(("val", "test"), [(0, 0.1), (-0.1, 0), (0.5, 0.5), (1, 0), (0.1, -0.1), (0.1, 1.0)])
def test_impossible_fractions_are_named(val: float, test: float):
    with pytest.raises(UserError, match=rf"val_fraction={val} and data.test_fraction={test}"):
        split(numbered(10), val_fraction=val, test_fraction=test, seed=0)


def test_groups_must_match_the_pairs():
    with pytest.raises(ValueError, match="longer"):
        split(numbered(3), val_fraction=0.5, seed=0, groups=[1, 2])


def test_a_corpus_needs_training_and_validation():
    some = numbered(1)
    assert Corpus(train=some, val=some, test=[]).scores == ()
    with pytest.raises(UserError, match=r"training split is empty \(0 training, 1 validation, 2 test"):
        Corpus(train=[], val=some, test=numbered(2))
    with pytest.raises(UserError, match="validation split is empty"):
        Corpus(train=some, val=[], test=some)
