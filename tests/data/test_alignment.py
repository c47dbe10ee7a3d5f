import pytest
import torch

from attnlab.data.alignment import alignment_matrix, output_links
from attnlab.data.corpus import Pair
from attnlab.data.tokenization.train import characters, subwords, whitespace, words
from attnlab.data.tokenization.vocabularies import Vocabularies
from digits import DIGITS, encode_all

PAIRS = [Pair("3 4 5", "5 4 3"), Pair("6", "6 6 6 6"), Pair("7 8", "")]
ALIGNMENTS = [((2, 0), (1, 1), (0, 2)), ((0, 0), (0, 3)), None]


def test_alignment_matrix_of_a_batch() -> None:
    batch = encode_all(PAIRS, DIGITS)[[2, 0, 1]]
    gold = alignment_matrix(batch, [ALIGNMENTS[index] for index in batch.indices.tolist()])
    assert gold.shape == (3, 5, 3)
    assert gold.dtype == torch.bool
    assert gold.nonzero().tolist() == [[1, 0, 2], [1, 1, 1], [1, 2, 0], [2, 0, 0], [2, 3, 0]]
    assert not alignment_matrix(batch, [None, (), None]).any()


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
def test_output_alignment_ends_at_the_first_difference_to_the_reference(
    output: list[int], links: list[list[int]]
) -> None:
    batch = encode_all(PAIRS, DIGITS)[[2, 0, 1]]
    assert output_links(((2, 0), (1, 1), (0, 2)), batch, 1, output) == links


@pytest.mark.parametrize("source_eos", [False, True])
def test_links_to_truncated_tokens_are_dropped(source_eos: bool) -> None:
    # 3 4 (EOS) → 5 4 EOS: the links of 3 and 5 to truncated tokens must not move to EOS or another row
    limits = {"max_source_length": 2 + source_eos, "max_target_length": 3}
    examples = encode_all(PAIRS, DIGITS, source_eos=source_eos, **limits)
    gold = alignment_matrix(examples[[0, 1]], ALIGNMENTS[:2])
    assert gold.nonzero().tolist() == [[0, 1, 1], [1, 0, 0]]
    gold = alignment_matrix(examples[[1, 2]], [((0, 1), (1, 0), (0, 2), (9, 9)), ((1, 0),)])
    assert gold.nonzero().tolist() == [[0, 1, 0]]


def test_gold_alignment_needs_tokenizers_of_whole_words() -> None:
    pair = Pair("3 4", "4 3", ((0, 1),))
    assert DIGITS.gold_alignment(pair) == pair.alignment
    for tokenizer in (characters(["3 4"], max_size=None), subwords(["3 4 3 4"], max_size=30)):
        assert Vocabularies(tokenizer, DIGITS.target).gold_alignment(pair) is None
        assert Vocabularies(DIGITS.source, tokenizer).gold_alignment(pair) is None
    for whole in (whitespace(["3 4"], max_size=None), words(["3 4"], max_size=None)):
        assert Vocabularies(whole, whole).gold_alignment(pair) == pair.alignment
