from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.batch_sampler import EvaluationBatchSampler, TrainingBatchSampler
from attnlab.errors import UserError


def batches_of(sampler: TrainingBatchSampler, epoch: int = 0) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return list(sampler)


def ranks(world: int, lengths: Sequence[int], epoch: int = 0, **settings: object) -> list[list[list[int]]]:
    """Return the batches of every rank; targets are as long as sources."""
    array = np.array(lengths)
    make = partial(TrainingBatchSampler, array, array, world=world, **settings)
    return [batches_of(make(rank=rank), epoch) for rank in range(world)]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=3, max_size=60),
    size=st.integers(1, 9),
    world=st.integers(1, 3),
    pool=st.integers(1, 4),
    bucket_by_length=st.booleans(),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
)
def test_sentence_batches_hold_every_pair_once_and_are_even(
    lengths: list[int], size: int, world: int, pool: int, bucket_by_length: bool, seed: int, epoch: int
) -> None:
    shares = ranks(world, lengths, epoch, size=size, pool=pool, bucket_by_length=bucket_by_length, seed=seed)
    batches = [batch for share in shares for batch in share]
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert len({len(share) for share in shares}) == 1
    sizes = {len(batch) for batch in batches}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= max(size, 2)
    if size > 1:  # the smallest number of batches divisible by the number of ranks
        assert len(batches) == -(-len(lengths) // (size * world)) * world


@given(
    lengths=st.lists(st.integers(1, 30), min_size=30, max_size=60),
    size=st.integers(120, 300),  # at least two pairs fit
    world=st.integers(1, 3),
    epoch=st.integers(0, 3),
)
def test_token_batches_hold_every_pair_once_and_respect_the_limit(
    lengths: list[int], size: int, world: int, epoch: int
) -> None:
    shares = ranks(world, lengths, epoch, size=size, batch_type="tokens")
    batches = [batch for share in shares for batch in share]
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert len({len(share) for share in shares}) == 1
    for batch in batches:
        assert 2 * max(lengths[index] for index in batch) * len(batch) <= size


def test_token_batches_of_an_example() -> None:
    sources, targets = np.array([1, 1, 1, 2, 2, 9]), np.array([1, 3, 1, 2, 4, 9])
    order = TrainingBatchSampler(sources, targets, size=8, batch_type="tokens")
    # Sorted: (1,1) (1,1) | (1,3) (2,2) would be 2 · (2+3) = 10 tokens: separate | (2,2) | (2,4) | (9,9)
    assert sorted(map(sorted, order)) == [[0, 2], [1], [3], [4], [5]]
    # (1,6) | (2,1) (2,1): a long target affects only its own batch
    order = TrainingBatchSampler(np.array([2, 1, 2]), np.array([1, 6, 1]), size=8, batch_type="tokens")
    assert sorted(map(sorted, order)) == [[0, 2], [1]]


def test_token_batches_have_the_same_sizes_in_every_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    order = TrainingBatchSampler(lengths, lengths[::-1].copy(), size=300, batch_type="tokens")
    sizes = [sorted(map(len, batches_of(order, epoch))) for epoch in range(4)]
    assert len(sizes[0]) == len(order)
    assert sizes == [sizes[0]] * 4


def test_largest_batch_is_split_until_the_ranks_are_even() -> None:
    # 8 of length 1, 4 of length 2; both full
    shares = ranks(2, [1] * 8 + [2] * 4, size=16, batch_type="tokens")
    assert [sorted(map(len, share)) for share in shares] in ([[8], [4]], [[4], [8]])
    three = ranks(3, [1] * 8 + [2] * 4, size=16, batch_type="tokens")
    assert sorted(len(batch) for share in three for batch in share) == [4, 4, 4]


def test_order_depends_only_on_seed_and_epoch() -> None:
    lengths = np.arange(1, 41)
    make = partial(TrainingBatchSampler, lengths, lengths, size=4, pool=2)
    assert batches_of(make(seed=1), 3) == batches_of(make(seed=1), 3)
    assert batches_of(make(seed=1), 3) != batches_of(make(seed=1), 4)
    assert batches_of(make(seed=1), 3) != batches_of(make(seed=2), 3)


def disjoint(group: list[int], groups: list[list[int]]) -> int:
    """Return how many groups of lengths are entirely shorter or entirely longer than a group."""
    return sum(max(other) < min(group) or max(group) < min(other) for other in groups)


def test_batches_of_a_pool_are_sorted_by_length() -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(96))
    order = TrainingBatchSampler(lengths, lengths, size=3, pool=4, bucket_by_length=True)
    for epoch in range(3):
        batches = [lengths[batch].tolist() for batch in batches_of(order, epoch)]
        assert min(disjoint(batch, batches) for batch in batches) >= 3


@pytest.mark.parametrize("options", [{}, {"bucket_by_length": True}, {"batch_type": "tokens", "size": 60}])
def test_longest_target_of_a_batch_comes_first(options: dict[str, Any]) -> None:
    sources, targets = np.random.default_rng(0).integers(1, 9, (2, 40))
    for batch in batches_of(TrainingBatchSampler(sources, targets, **{"size": 8, **options})):
        lengths = targets[batch].tolist()
        assert lengths == sorted(lengths, reverse=True)


def test_resumed_epoch_starts_at_its_batch_in_every_iterator() -> None:
    lengths = np.arange(1, 11)
    full, resumed = (TrainingBatchSampler(lengths, lengths, size=2) for _ in range(2))
    resumed.resume(1, 3)
    assert list(resumed) == batches_of(full, 1)[3:]  # also before `set_epoch`
    for epoch, begin in ((0, 0), (1, 3), (1, 3), (2, 0)):
        assert batches_of(resumed, epoch) == batches_of(full, epoch)[begin:]
    assert len(resumed) == 5


def test_invalid_settings_are_rejected() -> None:
    lengths = np.array([1, 2, 3])
    with pytest.raises(UserError, match="3 pairs are too few for 4 processes"):
        TrainingBatchSampler(lengths, lengths, size=1, world=4)
    with pytest.raises(UserError, match="batch_size=1 tokens gives 3 batches of one pair"):
        TrainingBatchSampler(lengths, lengths, size=1, batch_type="tokens", world=2)


def test_evaluation_is_sorted_by_length() -> None:
    assert list(EvaluationBatchSampler(np.array([3, 1, 2, 1]), np.arange(4), size=2)) == [[1, 3], [2, 0]]


def test_pairs_of_one_input_are_in_one_batch() -> None:
    # Three inputs of length 5, with the pairs 0 and 4, 1, 2; then one of length 2, with the pairs 3, 5, 6
    lengths, inputs = np.array([5, 5, 5, 2, 5, 2, 2]), np.array([0, 1, 2, 3, 0, 3, 3])
    assert list(EvaluationBatchSampler(lengths, inputs, size=2)) == [[3, 5, 6, 0, 4], [1, 2]]


@given(
    lengths=st.lists(st.integers(1, 9), min_size=3, max_size=30),
    repeated=st.lists(st.integers(0, 2), max_size=9),
    size=st.integers(1, 9),
    world=st.integers(1, 3),
)
def test_shards_evaluate_every_pair_once(
    lengths: list[int], repeated: list[int], size: int, world: int
) -> None:
    inputs = np.array([*range(len(lengths)), *repeated])
    lengths += [lengths[first] for first in repeated]
    orders = [
        EvaluationBatchSampler(np.array(lengths), inputs, size=size, shards=[shard], count=world)
        for shard in range(world)
    ]
    indices = [index for order in orders for batch in order for index in batch]
    assert sorted(indices) == list(range(len(lengths)))
    assert len({len(order) for order in orders}) == 1
    numbers = [{*inputs[batch]} for order in orders for batch in order]
    assert sum(map(len, numbers)) == len({*inputs})  # no input is in two batches
    assert all(len(order) == len(list(order)) >= 1 for order in orders)
