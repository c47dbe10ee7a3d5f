from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.splitting import split
from attnlab.errors import UserError
from digits import numbered


@pytest.mark.parametrize("groups", [None, [i // 3 for i in range(300)]], ids=["pairs", "equal groups"])
def test_split_has_the_exact_fractions_keeps_all_pairs_and_shuffles(groups: list[int] | None):
    pairs = numbered(300)
    parts = split(pairs, val_fraction=0.1, test_fraction=0.2, seed=0, groups=groups)
    assert [len(part) for part in parts] == [210, 30, 60]
    assert Counter(chain(*parts)) == Counter(pairs)
    assert all(part != sorted(part) for part in parts)


def test_split_depends_only_on_the_seed():
    first, again, other = (split(numbered(50), val_fraction=0.2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_only_a_fraction_of_zero_gives_an_empty_split():
    for test_fraction, sizes in ((0, [3, 1, 0]), (0.01, [2, 1, 1])):
        parts = split(numbered(4), val_fraction=0.01, test_fraction=test_fraction, seed=0)
        assert [len(part) for part in parts] == sizes


def test_large_group_goes_to_training():
    # The validation split needs 2 of 10 pairs; with the group of 8 it would have 6 too many
    for seed in range(10):
        train, val, _ = split(numbered(10), val_fraction=0.2, seed=seed, groups=["big"] * 8 + ["a", "b"])
        assert (len(train), len(val)) == (8, 2)


@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=60),
    st.floats(0.05, 0.45),
    st.floats(0, 0.45),
    st.integers(0, 5),
)
def test_groups_stay_in_one_split(groups: list[int], val_fraction: float, test_fraction: float, seed: int):
    pairs = numbered(len(groups))
    parts = split(pairs, val_fraction=val_fraction, test_fraction=test_fraction, seed=seed, groups=groups)
    assert Counter(chain(*parts)) == Counter(pairs)
    groups_of_parts = [{groups[int(pair.source)] for pair in part} for part in parts]
    assert sum(map(len, groups_of_parts)) == len(set(groups))
    sizes = Counter(groups)
    for part, fraction in zip(parts[1:], (val_fraction, test_fraction), strict=True):
        missing = (max(1, round(len(pairs) * fraction)) if fraction else 0) - len(part)
        assert -missing <= max(sizes.values()) / 2  # a group twice as large as the remaining space is skipped
        assert all(sizes[group] >= 2 * missing for group in groups_of_parts[0])  # and no smaller one is


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0), (0.5, 0.5), (1, 0), (0.1, -0.1), (0.1, 1.0)])
def test_invalid_fractions_are_rejected(val: float, test: float):
    with pytest.raises(UserError, match=rf"val_fraction={val} and data.test_fraction={test}"):
        split(numbered(10), val_fraction=val, test_fraction=test, seed=0)


def test_number_of_groups_must_equal_the_number_of_pairs():
    with pytest.raises(ValueError, match="longer"):
        split(numbered(3), val_fraction=0.5, seed=0, groups=[1, 2])
