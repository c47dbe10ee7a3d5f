"""Share of decoded texts that equal one of their references."""

from attnlab.metrics.registry import text_metric
from attnlab.metrics.sentence_counts import ratio_counts, share_counts
from attnlab.metrics.texts import Texts, matches


@text_metric(
    label="exact match",
    format="share",
    direction="higher",
    counts=lambda _: share_counts(has_equal_words),
    default=True,
    rank=4,
)
def exact_match(texts: Texts) -> float:
    """Return the share (0 to 1) of hypotheses whose white-space tokens equal those of a reference."""
    return texts.share(has_equal_words)


def has_equal_words(hypothesis: str, reference: str) -> bool:
    """Return whether two texts are equal up to white space."""
    return hypothesis.split() == reference.split()


@text_metric(
    label="WER",
    format="percent",
    direction="lower",
    counts=lambda _: ratio_counts(lambda prediction: (100 * (not matches(has_equal_words, prediction)), 1)),
    rank=5,
)
def wer(texts: Texts) -> float:
    """Return the word error rate of string transduction: the percentage of outputs that are not right.

    An output is one word, as in the SIGMORPHON shared tasks. In speech recognition the name means the edit
    distance over words instead.
    """
    return 100 * (1 - exact_match(texts))
