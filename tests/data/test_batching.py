from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.batching import (
    BatchOrder,
    EvaluationOrder,
    Examples,
    Sequences,
    aligned,
    aligned_output,
    encode,
)
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.training import bpe, characters, symbols, whitespace, words
from attnlab.data.tokenization.vocabularies import Vocabularies, train_vocabularies
from attnlab.errors import UserError
from attnlab.types import EOS, PAD, SOS, Batch

digits = symbols(["3"], count=7)
DIGITS = Vocabularies(digits, digits)
PAIRS = [Pair("3 4 5", "5 4 3"), Pair("6", "6 6 6 6"), Pair("7 8", "")]
uncut = partial(encode, source_eos=False, max_source_length=None, max_target_length=None)


# Encoding and collation


def test_a_batch_is_padded_to_its_longest() -> None:
    batch = uncut(PAIRS, DIGITS)[[2, 0]]
    assert isinstance(batch, Batch)
    assert batch.source.tolist() == [[7, 8, PAD], [3, 4, 5]]
    assert batch.source_lengths.tolist() == [2, 3]
    assert batch.target.tolist() == [[SOS, EOS, PAD, PAD, PAD], [SOS, 5, 4, 3, EOS]]
    assert batch.indices.tolist() == [2, 0]
    assert batch.copy_ids is None
    assert {tensor.dtype for tensor in batch if tensor is not None} == {torch.int64}


def test_counts_reach_to_the_last_sentence_that_goes_on() -> None:
    examples = uncut(PAIRS, DIGITS)  # of 4, 5 and 1 labels
    assert examples[[1] + 8 * [0] + 8 * [2]].counts == [17, 16, 16, 16, 8]  # 17, 9, 9, 9 and 1, rounded up
    assert examples[8 * [2] + 8 * [0] + [1]].counts == [17, 17, 17, 17, 17]
    assert examples[[2]].counts == [1]
    padded = examples[16 * [0]]._replace(target=torch.tensor([[SOS, 5, EOS, PAD, PAD]] * 16))
    assert padded.counts == [16, 16, 8, 8]


def test_lengths_count_what_is_read_and_what_is_predicted() -> None:
    examples = uncut(PAIRS, DIGITS)
    assert len(examples) == 3
    assert examples.source_lengths.tolist() == [3, 1, 2]
    assert examples.target_lengths.tolist() == [4, 5, 1]


def test_sources_may_end_with_a_mark() -> None:
    examples = uncut(PAIRS, DIGITS, source_eos=True)
    assert examples[[0, 1]].source.tolist() == [[3, 4, 5, EOS], [6, EOS, PAD, PAD]]
    assert examples.source_lengths.tolist() == [4, 2, 3]


@pytest.mark.parametrize(("source_eos", "source"), [(False, [3, 4]), (True, [3, EOS])])
def test_bounds_count_the_end_mark_which_is_kept(source_eos: bool, source: list[int]) -> None:
    examples = encode(PAIRS, DIGITS, source_eos=source_eos, max_source_length=2, max_target_length=3)
    assert examples[[0]].source.tolist() == [source]
    assert examples[[0, 1]].target.tolist() == [[SOS, 5, 4, EOS], [SOS, 6, 6, EOS]]
    assert examples.target_lengths.tolist() == [3, 3, 1]


def test_a_bound_without_room_for_text() -> None:
    with pytest.raises(UserError, match=r"max_source_length=1 .* at least 2"):
        encode(PAIRS, DIGITS, source_eos=True, max_source_length=1, max_target_length=None)
    with pytest.raises(UserError, match=r"max_target_length=1 .* at least 2"):
        encode(PAIRS, DIGITS, source_eos=False, max_source_length=1, max_target_length=1)


ALIGNMENTS = [((2, 0), (1, 1), (0, 2)), ((0, 0), (0, 3)), None]


def test_alignments_become_cells() -> None:
    batch = uncut(PAIRS, DIGITS)[[2, 0, 1]]
    gold = aligned(batch, [ALIGNMENTS[index] for index in batch.indices.tolist()])
    assert gold.shape == (3, 5, 3)
    assert gold.dtype == torch.bool
    assert gold.nonzero().tolist() == [[1, 0, 2], [1, 1, 1], [1, 2, 0], [2, 0, 0], [2, 3, 0]]
    assert not aligned(batch, [None, (), None]).any()


@pytest.mark.parametrize(
    ("output", "links"),
    [
        ([5, 4, 3], [[0, 2], [1, 1], [2, 0]]),
        ([5, 4, 3, 7], [[0, 2], [1, 1], [2, 0]]),
        ([5, 4], [[0, 2], [1, 1]]),
        ([5, 7, 3], [[0, 2]]),
        ([], []),
    ],
)
def test_links_of_an_output_are_known_as_far_as_it_is_the_reference(
    output: list[int], links: list[list[int]]
) -> None:
    batch = uncut(PAIRS, DIGITS)[[2, 0, 1]]
    gold = aligned(batch, [ALIGNMENTS[index] for index in batch.indices.tolist()])
    found = aligned_output(batch, gold, 1, output)
    assert found.shape == (len(output) + 1, 3)
    assert found.nonzero().tolist() == links


@pytest.mark.parametrize("source_eos", [False, True])
def test_links_to_what_was_cut_off_are_dropped(source_eos: bool) -> None:
    # 3 4 (EOS) → 5 4 EOS: the links of 3 and 5 to what is gone must not reach the marks or another row
    examples = encode(
        PAIRS, DIGITS, source_eos=source_eos, max_source_length=2 + source_eos, max_target_length=3
    )
    gold = aligned(examples[[0, 1]], ALIGNMENTS[:2])
    assert gold.nonzero().tolist() == [[0, 1, 1], [1, 0, 0]]
    gold = aligned(examples[[1, 2]], [((0, 1), (1, 0), (0, 2), (9, 9)), ((1, 0),)])
    assert gold.nonzero().tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("link", [(2, 0), (0, 1), (99999999999999999999, 0)])
def test_an_alignment_that_links_what_is_not_there(link: tuple[int, int]) -> None:
    """As in files that count from 1."""
    pairs = [Pair("3 4", "4 3", ((0, 1),)), Pair("3 4", "4", (link,))]
    with pytest.raises(UserError, match=rf"pair 2 of 2, '3 4': its alignment links {link[0]}-{link[1]}, but"):
        uncut(pairs, DIGITS)


def test_links_of_words_are_no_links_of_characters() -> None:
    pair = Pair("3 4", "4 3", ((0, 1),))
    assert DIGITS.gold_alignment(pair) == pair.alignment
    for cut in (characters(["3 4"], max_size=None), bpe(["3 4 3 4"], max_size=30)):
        assert Vocabularies(cut, digits).gold_alignment(pair) is None
        assert Vocabularies(digits, cut).gold_alignment(pair) is None
    for whole in (whitespace(["3 4"], max_size=None), words(["3 4"], max_size=None)):
        assert Vocabularies(whole, whole).gold_alignment(pair) == pair.alignment


def test_a_source_without_tokens_is_numbered_and_quoted() -> None:
    with pytest.raises(UserError, match=r"pair 2 of 2: .* ' ' \(target '4'\)"):
        uncut([Pair("3", "4"), Pair(" ", "4")], DIGITS, source_eos=True)


def test_each_side_is_encoded_with_its_own_vocabulary() -> None:
    pairs = [Pair("a b", "b a b")]
    batch = uncut(pairs, train_vocabularies(pairs, source=partial(whitespace, max_size=None)))[[0]]
    assert batch.source.tolist() == [[4, 5]]  # a, b: once each
    assert batch.target.tolist() == [[SOS, 4, 5, 4, EOS]]  # b is the more frequent


@given(rows=st.lists(st.lists(st.integers(1, 99), max_size=5), min_size=1, max_size=8), data=st.data())
def test_padding_undone_gives_back_the_rows(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    padded, lengths = Sequences.of(rows).padded(chosen)
    assert padded.shape == (len(chosen), max(len(rows[place]) for place in chosen))
    for row, length, place in zip(padded.tolist(), lengths.tolist(), chosen, strict=True):
        assert row[:length] == rows[place]
        assert set(row[length:]) <= {PAD}


def test_no_examples() -> None:
    assert len(Examples(Sequences.of([]), Sequences.of([]))) == 0


# Training order


def visits(order: BatchOrder, epoch: int = 0) -> list[list[int]]:
    order.set_epoch(epoch)
    return list(order)


def ranks(world: int, lengths: Sequence[int], epoch: int = 0, **settings: object) -> list[list[list[int]]]:
    """The batches of every rank, targets as long as sources."""
    array = np.array(lengths)
    make = partial(BatchOrder, array, array, world=world, **settings)
    return [visits(make(rank=rank), epoch) for rank in range(world)]


@given(
    lengths=st.lists(st.integers(1, 30), min_size=3, max_size=60),
    size=st.integers(1, 9),
    world=st.integers(1, 3),
    pool=st.integers(1, 4),
    bucket_by_length=st.booleans(),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
)
def test_every_pair_once_an_epoch_in_even_batches(
    lengths: list[int], size: int, world: int, pool: int, bucket_by_length: bool, seed: int, epoch: int
) -> None:
    shares = ranks(world, lengths, epoch, size=size, pool=pool, bucket_by_length=bucket_by_length, seed=seed)
    batches = [batch for share in shares for batch in share]
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert len({len(share) for share in shares}) == 1
    sizes = {len(batch) for batch in batches}
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= max(size, 2)
    if size > 1:  # the fewest batches that come out even among the ranks
        assert len(batches) == -(-len(lengths) // (size * world)) * world


@given(
    lengths=st.lists(st.integers(1, 30), min_size=30, max_size=60),
    size=st.integers(120, 300),  # two of the longest fit
    world=st.integers(1, 3),
    epoch=st.integers(0, 3),
)
def test_every_pair_once_an_epoch_within_the_tokens(
    lengths: list[int], size: int, world: int, epoch: int
) -> None:
    shares = ranks(world, lengths, epoch, size=size, batch_type="tokens")
    batches = [batch for share in shares for batch in share]
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert len({len(share) for share in shares}) == 1
    for batch in batches:
        assert 2 * max(lengths[place] for place in batch) * len(batch) <= size


def test_token_batches_by_hand() -> None:
    sources, targets = np.array([1, 1, 1, 2, 2, 9]), np.array([1, 3, 1, 2, 4, 9])
    order = BatchOrder(sources, targets, size=8, batch_type="tokens")
    # Sorted: (1,1) (1,1) | (1,3) (2,2) would take 2 · (2+3) = 10: alone | (2,2) | (2,4) | (9,9)
    assert sorted(map(sorted, order)) == [[0, 2], [1], [3], [4], [5]]
    # (1,6) | (2,1) (2,1): a long target does not weigh on the batches after its own
    order = BatchOrder(np.array([2, 1, 2]), np.array([1, 6, 1]), size=8, batch_type="tokens")
    assert sorted(map(sorted, order)) == [[0, 2], [1]]


def test_token_batches_are_as_many_in_every_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    order = BatchOrder(lengths, lengths[::-1].copy(), size=300, batch_type="tokens")
    sizes = [sorted(map(len, visits(order, epoch))) for epoch in range(4)]
    assert len(sizes[0]) == len(order)
    assert sizes == [sizes[0]] * 4


def test_the_largest_batch_is_split_to_come_out_even() -> None:
    # 8 of length 1, 4 of length 2; both full
    shares = ranks(2, [1] * 8 + [2] * 4, size=16, batch_type="tokens")
    assert [sorted(map(len, share)) for share in shares] in ([[8], [4]], [[4], [8]])
    three = ranks(3, [1] * 8 + [2] * 4, size=16, batch_type="tokens")
    assert sorted(len(batch) for share in three for batch in share) == [4, 4, 4]


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = np.arange(1, 41)
    make = partial(BatchOrder, lengths, lengths, size=4, pool=2)
    assert visits(make(seed=1), 3) == visits(make(seed=1), 3)
    assert visits(make(seed=1), 3) != visits(make(seed=1), 4)
    assert visits(make(seed=1), 3) != visits(make(seed=2), 3)


def test_batches_of_one_pool_hold_neighbours_in_length() -> None:
    lengths = np.random.default_rng(0).permutation(np.arange(1, 13))
    order = BatchOrder(lengths, lengths, size=3, pool=4)
    for epoch in range(3):
        found = sorted(sorted(lengths[batch].tolist()) for batch in visits(order, epoch))
        assert found == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]


def test_ranks_get_batches_of_similar_length() -> None:
    lengths = list(range(1, 13))
    for one, other in zip(*ranks(2, lengths, size=3, pool=2), strict=True):
        assert sorted(one + other) in ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11])


def sets(order: BatchOrder) -> list[set[int]]:
    return [set(batch) for batch in visits(order)]


def test_without_bucket_by_length_the_order_takes_no_notice_of_it() -> None:
    short, long = np.full(20, 1), np.arange(20)
    one = BatchOrder(short, short, size=4, bucket_by_length=False)
    other = BatchOrder(long, long, size=4, bucket_by_length=False)
    assert sets(one) == sets(other) != sets(BatchOrder(long, long, size=4))


@pytest.mark.parametrize("options", [{}, {"bucket_by_length": False}, {"batch_type": "tokens", "size": 60}])
def test_the_longest_target_of_a_batch_comes_first(options: dict[str, Any]) -> None:
    sources, targets = np.random.default_rng(0).integers(1, 9, (2, 40))
    for batch in visits(BatchOrder(sources, targets, **{"size": 8, **options})):
        lengths = targets[batch].tolist()
        assert lengths == sorted(lengths, reverse=True)


def test_a_resumed_epoch_begins_at_its_batch_for_every_iterator() -> None:
    lengths = np.arange(1, 11)
    full, resumed = (BatchOrder(lengths, lengths, size=2) for _ in range(2))
    resumed.resume(1, 3)
    assert list(resumed) == visits(full, 1)[3:]  # even before the epoch is set
    for epoch, begin in ((0, 0), (1, 3), (1, 3), (2, 0)):
        assert visits(resumed, epoch) == visits(full, epoch)[begin:]
    assert len(resumed) == 5


def test_orders_that_cannot_be() -> None:
    lengths = np.array([1, 2, 3])
    with pytest.raises(UserError, match="3 pairs cannot give each of 4 processes a batch"):
        BatchOrder(lengths, lengths, size=1, world=4)
    with pytest.raises(UserError, match="batch_size=0"):
        BatchOrder(lengths, lengths, size=0)
    with pytest.raises(UserError, match="pool=0"):
        BatchOrder(lengths, lengths, size=1, pool=0)
    with pytest.raises(UserError, match="bucket_by_length=true"):
        BatchOrder(lengths, lengths, size=9, batch_type="tokens", bucket_by_length=False)
    with pytest.raises(UserError, match="batch_size=1 tokens makes 3 batches of one pair"):
        BatchOrder(lengths, lengths, size=1, batch_type="tokens", world=2)


# Evaluation order


def test_evaluation_goes_from_short_to_long() -> None:
    assert list(EvaluationOrder(np.array([3, 1, 2, 1]), size=2)) == [[1, 3], [2, 0]]


@given(
    lengths=st.lists(st.integers(1, 9), min_size=3, max_size=30),
    size=st.integers(1, 9),
    world=st.integers(1, 3),
)
def test_ranks_share_an_evaluation_without_repeats(lengths: list[int], size: int, world: int) -> None:
    orders = [EvaluationOrder(np.array(lengths), size=size, rank=rank, world=world) for rank in range(world)]
    places = [place for order in orders for batch in order for place in batch]
    assert sorted(places) == list(range(len(lengths)))
    assert len({len(order) for order in orders}) == 1
    assert all(len(order) == len(list(order)) >= 1 for order in orders)


def test_an_evaluation_needs_a_pair_a_rank() -> None:
    with pytest.raises(UserError, match="1 pairs cannot give each of 2 processes a batch"):
        EvaluationOrder(np.array([1]), size=4, rank=0, world=2)
