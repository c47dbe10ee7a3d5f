from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.conala import dataset
from attnlab.data.conala.dataset import group_near_duplicates, similar_pairs

SETS = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=6), min_size=1, max_size=12)


@pytest.mark.parametrize("block", [1000, 3])
@given(SETS, st.sampled_from([0.01, 0.3, 0.5, 0.8, 1.0]))
def test_similar_pairs_equals_comparing_all_pairs(block: int, sets: list[frozenset[str]], threshold: float):
    every = {
        (j, i)
        for i, j in combinations(range(len(sets)), 2)
        if sets[i] and sets[j] and len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= threshold
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "BLOCK", block)
        pairs = similar_pairs(sets, threshold=threshold).T.tolist()
    assert {*map(tuple, pairs)} == every
    assert len(pairs) == len(every)


def test_chains_of_similar_examples_form_a_group():
    views = [
        [frozenset(text) for text in ("ab", "ab", "cd", "ef", "gh")],
        [frozenset(text) for text in "xyyzw"],
    ]
    groups = group_near_duplicates([1, 2, 3, 3, 4], views, threshold=0.8)
    assert len({groups[0], groups[1], groups[2], groups[3]}) == 1  # a view, the other view, the key
    assert groups[4] != groups[0]
    assert group_near_duplicates([], [[]], threshold=0.5) == []
