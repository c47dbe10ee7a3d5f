"""Corpus metrics as counts per sentence, for significance tests that resample sentences.

[N, C] is a table of N sentences and C counts, which add up over sentences. sacreBLEU computes the counts; the
score is a function of arrays of sums, since tests compute it thousands of times, and equals sacreBLEU's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU

from attnlab.files.predictions import Prediction
from attnlab.metrics.texts import matches, references_of

Counts = NDArray[np.float64]  # Whole numbers, stored as floats because float matrix products are faster

MAX_SENTENCES = 2**15
"""Number of inputs, and of pairs of an input and a hypothesis, whose counts are kept in memory."""


@dataclass(frozen=True)
class SentenceCounts:
    """A corpus metric that is a function of counts summed over the sentences."""

    # maps N ≥ 1 predictions to counts [N, C]
    count: Callable[[Sequence[Prediction]], Counts]
    # maps summed counts [..., C] to the metric [...], in the unit in which runs log it
    value: Callable[[Counts], Counts]


def bleu_counts(metric: BLEU, *, smooth: bool, prepare: Callable[[str], str] = str) -> SentenceCounts:
    """Return the counts of BLEU over prepared texts, with sacreBLEU's exponential smoothing or none."""
    return _sacrebleu(metric, partial(_bleu, smooth=smooth), prepare)


@cache
def chrf_counts() -> SentenceCounts:
    """Return the counts of sacreBLEU's chrF with its default settings."""
    from sacrebleu.metrics.chrf import CHRF

    return _sacrebleu(CHRF(), _chrf)


def _sacrebleu(
    metric: Metric, value: Callable[[Counts], Counts], prepare: Callable[[str], str] = str
) -> SentenceCounts:
    """Return the counts of a sacreBLEU metric over prepared texts.

    Uses the methods on which sacreBLEU's own paired tests are built; there is no public equivalent.
    """

    @lru_cache(maxsize=MAX_SENTENCES)  # several systems may have the same output
    def row(hypothesis: str, references: tuple[str, ...]) -> tuple[int, ...]:
        metric._ref_cache = ngrams(references)
        return tuple(metric._extract_corpus_statistics([prepare(hypothesis)], None)[0])

    @lru_cache(maxsize=MAX_SENTENCES)
    def ngrams(references: tuple[str, ...]) -> list[Any]:
        return metric._cache_references([[prepare(reference)] for reference in references])

    def count(predictions: Sequence[Prediction]) -> Counts:
        return np.array([row(each.hypothesis, references_of(each)) for each in predictions], dtype=float)

    return SentenceCounts(count, value)


def _bleu(counts: Counts, *, smooth: bool) -> Counts:
    """Return sacreBLEU's BLEU of counts [..., 2 + 4 + 4]: lengths, correct and all n-grams."""
    length, reference_length = counts[..., 0], counts[..., 1]
    correct, total = counts[..., 2:6], counts[..., 6:10]  # [..., 4]
    wrong = correct == 0
    if smooth:  # the k-th order without a match counts as 1 / 2 ** k matches
        correct = np.where(wrong, 0.5 ** wrong.cumsum(axis=-1), correct)
    exists = ~wrong.all(axis=-1) & (correct > 0).all(axis=-1) & (total > 0).all(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        brevity_penalty = np.exp(np.minimum(0, 1 - reference_length / length))
        score = 100 * brevity_penalty * np.exp(np.log(correct / total).mean(axis=-1))
    return np.where(exists, score, 0.0)


def _chrf(counts: Counts) -> Counts:
    """Return sacreBLEU's chrF2 of counts [..., 6 * 3]: for each order those of both texts and of matches."""
    hypothesis, reference, match = np.moveaxis(counts.reshape(*counts.shape[:-1], -1, 3), -1, 0)  # [..., 6]
    orders = (hypothesis > 0) & (reference > 0)
    precision = np.divide(match, hypothesis, out=np.zeros_like(match), where=orders).sum(axis=-1)
    recall = np.divide(match, reference, out=np.zeros_like(match), where=orders).sum(axis=-1)
    weighted = (4 * precision + recall) * np.maximum(orders.sum(axis=-1), 1)  # β² = 4
    product = 5 * precision * recall
    score: Counts = np.divide(product, weighted, out=np.zeros_like(product), where=weighted > 0)
    return 100 * score


def share_counts(is_right: Callable[[str, str], bool]) -> SentenceCounts:
    """Return the counts of the share of hypotheses that are right, given one of their references."""
    return ratio_counts(lambda prediction: (matches(is_right, prediction), 1))


def ratio_counts(parts: Callable[[Prediction], tuple[float, float]]) -> SentenceCounts:
    """Return the counts of a ratio of two sums over sentences; 0 for resamples that do not define it."""

    def value(total: Counts) -> Counts:
        zeros = np.zeros(total.shape[:-1])
        ratio: Counts = np.divide(total[..., 0], total[..., 1], out=zeros, where=total[..., 1] > 0)
        return ratio

    return SentenceCounts(lambda predictions: np.array([*map(parts, predictions)], dtype=float), value)
