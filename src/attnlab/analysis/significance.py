"""Paired significance tests of two systems over the sentences of a test set.

They answer whether two trained networks would also differ on other sentences. A corpus score is a function of
counts that are summed over sentences: [N, C] holds C counts of N sentences. scipy resamples the sentences.

sacreBLEU's paired approximate randomisation (`sacrebleu --paired-ar`) is not used for p: it counts the random
assignments whose difference is *larger* than the observed one, where the test requires *at least as large*.
It gives p = 0.0001 for two equal systems, and for systems that differ in one sentence of a hundred. Where
both definitions count the same assignments, the p-values agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attnlab.metrics.sentence_counts import Counts, SentenceCounts

SEED = 12345  # fixed, so that reports are reproducible
BOOTSTRAP_RESAMPLES = 1000
PERMUTATIONS = 9999
BATCH = 200  # resamples at a time; limits memory to 3 MB for 2,000 sentences


class SentenceTest(NamedTuple):
    """Result of a paired test: the difference ours - theirs, its 95 % interval and the p-value."""

    difference: float
    low: float
    high: float
    p: float


def paired_test(score: SentenceCounts, ours: Sequence[Counts], theirs: Sequence[Counts]) -> SentenceTest:
    """Compare the outputs of two systems for the same N ≥ 2 sentences.

    The counts of a sentence are summed over the seeds, because outputs of several seeds for the same sentence
    are not independent. The difference is that of the corpora of all seeds together.

    Args:
        score: the metric.
        ours: [N, C] for each seed.
        theirs: [N, C] for each seed, in the same order.

    Returns:
        The difference, the 95 % percentile interval of the paired bootstrap (Koehn, 2004) and the two-sided
        p-value of approximate randomisation (Riezler and Maxwell, 2005), exact if few sentences differ.
    """
    our, their = np.sum(ours, axis=0), np.sum(theirs, axis=0)  # [N, C]
    difference = score.value(our.sum(axis=0)) - score.value(their.sum(axis=0))
    return SentenceTest(
        difference, *bootstrap_interval(score, our, their), randomisation_p_value(score, our, their)
    )


def bootstrap_interval(score: SentenceCounts, our: Counts, their: Counts) -> tuple[float, float]:
    """Return the 95 % paired bootstrap interval of ours - theirs; counts [N, C] each."""

    def difference(rows: NDArray[np.int64]) -> float:
        frequency = np.bincount(rows, minlength=len(our))  # [N]
        return score.value(frequency @ our) - score.value(frequency @ their)

    result = stats.bootstrap(
        (np.arange(len(our)),),
        difference,
        n_resamples=BOOTSTRAP_RESAMPLES,
        batch=BATCH,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(SEED),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def randomisation_p_value(score: SentenceCounts, our: Counts, their: Counts) -> float:
    """Return the two-sided p-value of paired approximate randomisation; counts [N, C] each.

    p is the probability of a difference at least as large when the two outputs of each sentence are swapped
    at random.
    """
    differ = (our != their).any(axis=1)
    if differ.sum() < 2:
        return 1.0  # swapping one sentence only changes the sign of the difference
    constant = our[~differ].sum(axis=0)  # [C]: sum over the sentences that swapping does not change
    our, their = our[differ], their[differ]  # [D, C]

    def difference(left: NDArray[np.float64], right: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """Differences between the two sides; [..., D] is 0 for our output and 1 for theirs."""
        on_left = constant + right @ our + left @ their  # [..., C]
        on_right = constant + left @ our + right @ their  # [..., C]
        values = np.apply_along_axis(score.value, -1, np.stack([on_left, on_right]))  # [2, ...]
        return np.asarray(values[0] - values[1])

    result = stats.permutation_test(
        (np.zeros(len(our)), np.ones(len(our))),
        difference,
        permutation_type="samples",
        n_resamples=PERMUTATIONS,
        batch=BATCH,
        vectorized=True,
        rng=np.random.default_rng(SEED),
    )
    return float(result.pvalue)
