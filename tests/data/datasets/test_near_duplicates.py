from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.datasets.near_duplicates import group, near

SETS = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=6), max_size=12)


def test_by_hand():
    sets = [frozenset(text) for text in ("abcd", "abcde", "abcf", "xyz", "")]
    assert set(near(sets, threshold=0.8)) == {(1, 0)}  # 4 of 5; abcd and abcf share 3 of 5
    assert set(near(sets, threshold=0.6)) == {(1, 0), (2, 0)}  # abcde and abcf share 3 of 6


@given(SETS, st.sampled_from([0.01, 0.3, 0.5, 0.8, 1.0]))
def test_no_pair_is_missed(sets: list[frozenset[str]], threshold: float):
    every = {
        (j, i)
        for i, j in combinations(range(len(sets)), 2)
        if sets[i] and sets[j] and len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= threshold
    }
    assert set(near(sets, threshold=threshold)) == every


def test_chains_make_groups():
    views = [
        [frozenset(text) for text in ("ab", "ab", "cd", "ef", "gh")],
        [frozenset(text) for text in "xyyzw"],
    ]
    groups = group([1, 2, 3, 3, 4], views, threshold=0.8)
    assert len({groups[0], groups[1], groups[2], groups[3]}) == 1  # a view, the other view, the key
    assert groups[4] != groups[0]


@given(SETS)
def test_groups_are_closed(sets: list[frozenset[str]]):
    groups = group(range(len(sets)), [sets], threshold=0.5)
    assert all(groups[i] == groups[j] for i, j in near(sets, threshold=0.5))


@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_nothing_to_group(threshold: float):
    assert group([], [[]], threshold=threshold) == []
