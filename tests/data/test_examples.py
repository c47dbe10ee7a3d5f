from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab.data.corpus import Origin, Pair
from attnlab.data.examples import Examples
from attnlab.data.tokenization.train import subwords, whitespace
from attnlab.data.tokenization.vocabularies import train_vocabularies
from attnlab.errors import UserError
from attnlab.types import EOS, PAD, SOS, Batch
from digits import DIGITS, encode_all
from networks import sequences

PAIRS = [Pair("3 4 5", "5 4 3"), Pair("6", "6 6 6 6"), Pair("7 8", "")]


def test_batch_is_padded_to_its_longest_sequence() -> None:
    batch = encode_all(PAIRS, DIGITS)[[2, 0]]
    assert isinstance(batch, Batch)
    assert batch.source.tolist() == [[7, 8, PAD], [3, 4, 5]]
    assert batch.source_lengths.tolist() == [2, 3]
    assert batch.target.tolist() == [[SOS, EOS, PAD, PAD, PAD], [SOS, 5, 4, 3, EOS]]
    assert batch.indices.tolist() == [2, 0]
    assert batch.copy_ids is None
    assert {tensor.dtype for tensor in batch if tensor is not None} == {torch.int64}


@pytest.mark.parametrize(
    ("source_eos", "sources", "lengths"),
    [
        (False, [[3, 4, 5], [6, PAD, PAD]], [3, 1, 2]),
        (True, [[3, 4, 5, EOS], [6, EOS, PAD, PAD]], [4, 2, 3]),
    ],
)
def test_source_eos_ends_sources(source_eos: bool, sources: list[list[int]], lengths: list[int]) -> None:
    examples = encode_all(PAIRS, DIGITS, source_eos=source_eos)
    assert examples[[0, 1]].source.tolist() == sources
    assert examples.source_lengths.tolist() == lengths
    assert examples.target_lengths.tolist() == [4, 5, 1]


@pytest.mark.parametrize(("source_eos", "source"), [(False, [3, 4]), (True, [3, EOS])])
def test_length_limits_count_and_keep_eos(source_eos: bool, source: list[int]) -> None:
    examples = encode_all(PAIRS, DIGITS, source_eos=source_eos, max_source_length=2, max_target_length=3)
    assert examples[[0]].source.tolist() == [source]
    assert examples[[0, 1]].target.tolist() == [[SOS, 5, 4, EOS], [SOS, 6, 6, EOS]]
    assert examples.target_lengths.tolist() == [3, 3, 1]


def test_truncated_sequences_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    encode_all(PAIRS, DIGITS, max_source_length=2, max_target_length=4)
    assert caplog.messages == [
        "1 of 3 sources are truncated to 2 tokens: batching.max_source_length",
        "1 of 3 targets are truncated to 3 tokens: batching.max_target_length",
    ]


def test_tokens_outside_the_vocabulary_are_counted_with_the_place_of_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = train_vocabularies([Pair("a b c", "x y")], source=whitespace)
    pairs = [
        Pair("c b a", "y", origin=Origin("dev.tsv", 4)),
        Pair("b d e d", "x", origin=Origin("dev.tsv", 7)),
        Pair("f a g", "y x z", origin=Origin("dev.tsv", 8)),
    ]
    encode_all(pairs, words, source_eos=True, name="validation")
    assert caplog.messages == [
        "outside the vocabulary, read as <unk>: 5 of 10 source tokens of the validation data, such as 'd', "
        "'e', 'f'; first in dev.tsv, line 7",
        "outside the vocabulary, read as <unk>: 1 of 5 target tokens of the validation data, such as 'z'; "
        "first in dev.tsv, line 8",
    ]


def test_subwords_outside_the_vocabulary_have_no_spelling(caplog: pytest.LogCaptureFixture) -> None:
    trained = train_vocabularies([Pair("ab abc", "abc")], source=partial(subwords, max_size=50))
    pairs = [Pair("ab", "ab"), Pair("aéb", "abc")]  # ▁ab; ▁ a é b
    encode_all(pairs, trained, name="test")
    assert caplog.messages == [
        "outside the vocabulary, read as <unk>: 1 of 5 source tokens of the test data; first in pair 2 of 2"
    ]


def test_far_longer_sequences_are_reported_with_their_place(caplog: pytest.LogCaptureFixture) -> None:
    usual = [Pair("3 4", "4 3 3")] * 120
    encode_all([*usual, Pair("3 " * 20, "4", origin=Origin("a.tsv", 121))], DIGITS)
    assert caplog.messages == []
    encode_all([*usual, Pair("3 " * 21, "4 " * 31, origin=Origin("a.tsv", 121))], DIGITS)
    assert [message.split(".")[:2] for message in caplog.messages] == [
        ["a", f"tsv, line 121: the {side} has {length} tokens, and 99 % of the {side}s have at most {most}"]
        for side, length, most in (("source", 21, 2), ("target", 31, 3))
    ]


def test_length_limits_must_leave_space_for_text() -> None:
    with pytest.raises(UserError, match=r"max_source_length=1 must be at least 2"):
        encode_all(PAIRS, DIGITS, source_eos=True, max_source_length=1)
    with pytest.raises(UserError, match=r"max_target_length=1 must be at least 2"):
        encode_all(PAIRS, DIGITS, max_source_length=1, max_target_length=1)


@pytest.mark.parametrize("link", [(2, 0), (0, 1), (99999999999999999999, 0)])
def test_alignment_links_to_missing_tokens_are_rejected(link: tuple[int, int]) -> None:
    # As in files that count from 1
    pairs = [Pair("3 4", "4 3", ((0, 1),)), Pair("3 4", "4", (link,))]
    with pytest.raises(
        UserError, match=rf"pair 2 of 2, '3 4': the alignment has the link {link[0]}-{link[1]}, but"
    ):
        encode_all(pairs, DIGITS)


def test_error_of_a_source_without_tokens_names_the_pair() -> None:
    for origin, place in ((None, "pair 2 of 2"), (Origin("a.tsv", 17), "a.tsv, line 17")):
        with pytest.raises(UserError, match=rf"{place}: the source ' ' \(target '4'\) has no tokens"):
            encode_all([Pair("3", "4"), Pair(" ", "4", origin=origin)], DIGITS, source_eos=True)


def test_source_and_target_use_their_own_vocabulary() -> None:
    pairs = [Pair("a b", "b a b")]
    batch = encode_all(pairs, train_vocabularies(pairs, source=partial(whitespace, max_size=None)))[[0]]
    assert batch.source.tolist() == [[4, 5]]  # a, b: once each
    assert batch.target.tolist() == [[SOS, 4, 5, 4, EOS]]  # b is the more frequent


@given(rows=st.lists(st.lists(st.integers(1, 99), max_size=5), min_size=1, max_size=8), data=st.data())
def test_padded_rows_without_padding_equal_the_original_rows(
    rows: list[list[int]], data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    padded, lengths = sequences(rows).padded(chosen)
    assert padded.shape == (len(chosen), max(len(rows[index]) for index in chosen))
    for row, length, index in zip(padded.tolist(), lengths.tolist(), chosen, strict=True):
        assert row[:length] == rows[index]
        assert set(row[length:]) <= {PAD}


def test_empty_examples() -> None:
    assert len(Examples(sequences([]), sequences([]))) == 0


def test_unknown_token_that_looks_like_a_known_one_is_logged_with_code_points(
    caplog: pytest.LogCaptureFixture,
) -> None:
    composed, decomposed = "b \u00e3", "b a\u0303 q"
    vocabularies = train_vocabularies([Pair("x", composed)], source=partial(whitespace, max_size=None))
    caplog.clear()
    pairs = [Pair("x", decomposed)]
    encode_all(pairs, vocabularies, name="validation")
    assert "such as 'a\u0303' (U+0061 U+0303; the vocabulary has U+00E3), 'q'; first in" in caplog.text
