"""Edit distance over target tokens."""

from collections.abc import Callable

from rapidfuzz.distance import Levenshtein

from attnlab.metrics.registry import text_metric
from attnlab.metrics.sentence_counts import SentenceCounts, ratio_counts
from attnlab.metrics.texts import Texts, UndefinedScoreError

SPLITS: dict[str, Callable[[str], list[str]]] = {
    "characters": list,
    "symbols": str.split,
    "whitespace": str.split,
}
"""Tokenizers whose tokens follow from the text alone, by the names of their options."""


def counts(tokenizer: str) -> SentenceCounts | None:
    """Return the edits and the reference tokens per sentence; None if the tokens need a vocabulary."""
    split = SPLITS.get(tokenizer)
    if split is None:
        return None
    return ratio_counts(
        lambda each: (
            Levenshtein.distance(split(each.hypothesis), split(each.reference)),
            len(split(each.reference)),
        )
    )


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

    The tokens are those of the target tokenizer: words, subwords, phones or characters.
    """
    distance = total = 0
    for pair in texts.pairs:
        hypothesis, reference = map(texts.tokenize, pair)
        distance += Levenshtein.distance(hypothesis, reference)
        total += len(reference)
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
