"""Edit distance over target tokens."""

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from attnlab.metrics.registry import text_metric
from attnlab.metrics.sentence_counts import SentenceCounts, ratio_counts
from attnlab.metrics.texts import Texts, UndefinedScoreError, references_of

SPLITS: dict[str, Callable[[str], list[str]]] = {
    "characters": list,
    "symbols": str.split,
    "whitespace": str.split,
}
"""Tokenizers whose tokens follow from the text alone, by the names of their options."""


class Edits(NamedTuple):
    """Edits of the tokens of a hypothesis that give the nearest reference."""

    distance: int  # number of insertions, deletions and substitutions
    length: int  # number of tokens of the reference
    position: int  # that of the reference


def edits(hypothesis: str, references: Sequence[str], tokenize: Callable[[str], list[str]]) -> Edits:
    """Compare a hypothesis with the reference of fewest edits; of several, with the longest."""
    tokens = tokenize(hypothesis)
    compared = [
        Edits(Levenshtein.distance(tokens, reference), len(reference), position)
        for position, reference in enumerate(map(tokenize, references))
    ]
    return min(compared, key=lambda each: (each.distance, -each.length))


def counts(tokenizer: str) -> SentenceCounts | None:
    """Return the edits and the reference tokens per sentence; None if the tokens need a vocabulary.

    Args:
        tokenizer: a key of `SPLITS`, with a normalisation form after a colon if there is one.
    """
    name, _, form = tokenizer.partition(":")
    if (split := SPLITS.get(name)) is None:
        return None

    def tokenize(text: str) -> list[str]:
        return split(unicodedata.normalize(form.upper(), text) if form else text)  # type: ignore[arg-type]

    return ratio_counts(lambda each: edits(each.hypothesis, references_of(each), tokenize)[:2])


@text_metric(
    label="edit distance",
    format="positive",
    direction="lower",
    counts=counts,
    of_target_tokens=True,
    default=True,
)
def edit_distance(texts: Texts) -> float:
    """Return the insertions, deletions and substitutions of target tokens, per token of the references.

    Of several references of an input, the nearest one counts (see `edits`). The tokens are those of the
    target tokenizer: words, subwords, phones or characters.
    """
    rows = [edits(*pair, texts.tokenize) for pair in zip(texts.hypotheses, texts.references, strict=True)]
    distance, total, _ = map(sum, zip(*rows, strict=True))
    if total == 0:
        raise UndefinedScoreError("all references are empty")
    return distance / total


@text_metric(label="SER", format="rate", direction="lower", counts=counts, of_target_tokens=True)
def ser(texts: Texts) -> float:
    """Return the symbol error rate: the edit distance, by its name in string transduction."""
    return edit_distance(texts)


@text_metric(label="PER", format="rate", direction="lower", counts=counts, of_target_tokens=True)
def per(texts: Texts) -> float:
    """Return the phone error rate: the symbol error rate of targets whose tokens are phones."""
    return edit_distance(texts)


@text_metric(label="CER", format="rate", direction="lower", counts=counts, of_target_tokens=True)
def cer(texts: Texts) -> float:
    """Return the character error rate: the symbol error rate of targets whose tokens are characters."""
    return edit_distance(texts)
