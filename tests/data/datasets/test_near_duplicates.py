from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.datasets.near_duplicates import group_near_duplicates, similar_pairs

SETS = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=6), max_size=12)


def test_similar_pairs_of_an_example():
    sets = [frozenset(text) for text in ("abcd", "abcde", "abcf", "xyz", "")]
    assert set(similar_pairs(sets, threshold=0.8)) == {(1, 0)}  # 4 of 5; abcd and abcf share 3 of 5
    assert set(similar_pairs(sets, threshold=0.6)) == {(1, 0), (2, 0)}  # abcde and abcf share 3 of 6


@given(SETS, st.sampled_from([0.01, 0.3, 0.5, 0.8, 1.0]))
def test_similar_pairs_equals_comparing_all_pairs(sets: list[frozenset[str]], threshold: float):
    every = {
        (j, i)
        for i, j in combinations(range(len(sets)), 2)
        if sets[i] and sets[j] and len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= threshold
    }
    assert set(similar_pairs(sets, threshold=threshold)) == every


def test_chains_of_similar_examples_form_a_group():
    views = [
        [frozenset(text) for text in ("ab", "ab", "cd", "ef", "gh")],
        [frozenset(text) for text in "xyyzw"],
    ]
    groups = group_near_duplicates([1, 2, 3, 3, 4], views, threshold=0.8)
    assert len({groups[0], groups[1], groups[2], groups[3]}) == 1  # a view, the other view, the key
    assert groups[4] != groups[0]


@given(SETS)
def test_similar_examples_have_the_same_group(sets: list[frozenset[str]]):
    groups = group_near_duplicates(range(len(sets)), [sets], threshold=0.5)
    assert all(groups[i] == groups[j] for i, j in similar_pairs(sets, threshold=0.5))


@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_no_examples_give_no_groups(threshold: float):
    assert group_near_duplicates([], [[]], threshold=threshold) == []
