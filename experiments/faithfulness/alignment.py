"""Word alignments from attention weights: subwords to words, alignment error rate.

T, S as in `attnlab.types` · I source words · J target words
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.data.alignment import parse_links
from attnlab.errors import UserError
from attnlab.files.reading import read_text, split_lines

Links = frozenset[tuple[int, int]]
"""Links (source word, target word), both counted from 0."""


class Gold(NamedTuple):
    """Gold alignment of a sentence. Sure links are also possible ones."""

    sure: Links
    possible: Links


def error_counts(links: Links, gold: Gold) -> tuple[int, int]:
    """Return the numerator and the denominator of the alignment error rate of a sentence.

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) for links A, sure links S and possible links P, with the sums
    of all sentences: Och & Ney 2003 (Computational Linguistics 29:1), section 5.
    """
    total = len(links) + len(gold.sure)
    return total - len(links & gold.sure) - len(links & gold.possible), total


def alternatives(links: Iterable[tuple[int, int]]) -> Gold:
    """Return the gold alignment of the links (source, target) of a pair of the corpus.

    The only link of a target word is sure. Several links are alternatives, such as the equal symbols of the
    task `sort`, so that they are only possible.
    """
    links = frozenset(links)
    counts = Counter(target for _, target in links)
    return Gold(frozenset(link for link in links if counts[link[1]] == 1), links)


def best_links(
    weights: NDArray[np.floating], source_words: Sequence[int], target_words: Sequence[int]
) -> Links:
    """Link each target word to the source word with the largest weight.

    The weight of two words is the sum over the subwords of the source word, averaged over those of the target
    word: Garg et al. 2019 (arXiv 1909.02074), section 4. A target word whose weights are all 0 has no link.

    Args:
        weights: attention weights [T, S] of the tokens, EOS excluded or not.
        source_words: word of each of at most S tokens.
        target_words: word of each of at most T tokens.
    """
    if not source_words or not target_words:
        return frozenset()
    of_words = np.zeros((max(target_words) + 1, max(source_words) + 1))  # [J, I]
    rows, columns = np.meshgrid(target_words, source_words, indexing="ij")
    np.add.at(of_words, (rows, columns), weights[: len(target_words), : len(source_words)])
    return frozenset((int(row.argmax()), j) for j, row in enumerate(of_words) if row.any())


def read_gold(path: str, count: int) -> list[Gold]:
    """Read gold alignments: one line for each sentence, sure links as `0-1` and possible ones as `0?1`."""
    lines = split_lines(read_text(path, setting="explain.alignments"))
    if len(lines) != count:
        raise UserError(
            f"explain.alignments: {path} has {len(lines)} lines for {count} sentences: give one line per "
            "sentence of the evaluated split"
        )
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def _parse(line: str, location: str) -> Gold:
    links = [*parse_links(line, location, signs="-?")]
    sure = frozenset((source, target) for source, sign, target in links if sign == "-")
    return Gold(sure, frozenset((source, target) for source, _, target in links))
