"""Alignment error rate, subwords to words, files of sure and possible links."""

from pathlib import Path

import numpy as np
import pytest

from attnlab.data.conala.tokenizer import python
from attnlab.data.tokenization.train import subwords, whitespace, words
from attnlab.errors import UserError
from attnlab.explain.alignment import Gold, alternatives, best_links, error_counts, read_gold


def test_alignment_error_rate_by_hand() -> None:
    gold = Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (1, 2)}))
    links = frozenset({(0, 0), (1, 2), (3, 3)})
    # |A ∩ S| = 1, |A ∩ P| = 2, |A| = 3, |S| = 2
    assert error_counts(links, gold) == (2, 5)


def test_alternatives_are_possible_links_only() -> None:
    gold = alternatives([(0, 0), (1, 1), (2, 1)])
    assert gold.sure == {(0, 0)}
    assert gold.possible == {(0, 0), (1, 1), (2, 1)}
    assert error_counts(frozenset({(0, 0), (2, 1)}), gold) == (0, 3)


def test_weights_of_subwords_are_added_over_the_source_and_averaged_over_the_target() -> None:
    weights = np.array([[0.3, 0.3, 0.4], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4], [0.0, 0.0, 0.0]])
    # source tokens 0 and 1 are word 0; target tokens 0 and 1 are word 0
    assert best_links(weights, [0, 0, 1], [0, 0, 1, 2]) == {(1, 0), (0, 1)}
    assert best_links(weights, [], []) == frozenset()


def test_words_of_tokens() -> None:
    texts = ["low lower lowest", "new newer newest"]
    assert whitespace(texts, max_size=None).words("low  newest zzz") == [0, 1, 2]
    split = words(texts, max_size=20, subwords=True, drop=[], split=["ascii_punctuation"])
    assert split.words("lowest, new")[-1] == 1
    for tokenizer in (split, subwords(texts, max_size=20)):
        numbers = tokenizer.words("lowest new lower")
        assert len(numbers) == len(tokenizer.encode("lowest new lower")) > 3
        assert numbers == sorted(numbers)
        assert set(numbers) == {0, 1, 2}
    code = python(["f(x)", "g(y)"], max_size=None)
    assert code.words("f(y)") == [0, 1, 2, 3]


def test_gold_file(tmp_path: Path) -> None:
    path = tmp_path / "gold.txt"
    path.write_text("0-0 1?2\n\n")
    first, second = read_gold(str(path), 2)
    assert (first.sure, first.possible) == ({(0, 0)}, {(0, 0), (1, 2)})
    assert second == (frozenset(), frozenset())
    with pytest.raises(UserError, match="has 2 lines for 3 sentences"):
        read_gold(str(path), 3)
    path.write_text("0:0\n")
    with pytest.raises(UserError, match=r"line 1: '0:0' is not a link"):
        read_gold(str(path), 1)
    with pytest.raises(UserError, match=r"explain\.alignments"):
        read_gold(str(tmp_path / "missing"), 1)
