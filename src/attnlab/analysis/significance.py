"""Tests over the sentences of a test set: whether these very networks would differ on other sentences too.

A corpus score is computed from counts that add up over sentences; [N, C] is a table of them, N sentences and
C counts. sacreBLEU counts and scores, scipy resamples.

sacreBLEU's own paired test (`sacrebleu --paired-ar`) is not used for p: it asks how often random outputs
differ by *more* than those seen, where a test must ask for as much or more. So it gives p = 0.0001 to two
equal systems, and to systems that differ in one sentence of a hundred. Where the two ways agree on
what to count, they agree on p.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attnlab.metrics.sentence_counts import Counts, SentenceCounts

SEED = 12345  # so that a report made again is the same report
RESAMPLES = 1000
TRIALS = 9999
BATCH = 200  # resamples drawn at once, so that memory stays small: 3 MB for 2,000 sentences


class SentenceTest(NamedTuple):
    """Ours - theirs over a test set, in the unit of the score."""

    difference: float
    low: float
    high: float
    p: float


def compare(score: SentenceCounts, ours: Sequence[Counts], theirs: Sequence[Counts]) -> SentenceTest:
    """Compare the outputs of two systems for the same N sentences, N at least 2.

    A sentence's counts are added over the seeds, so that a sentence is one unit however many networks wrote
    an output for it: outputs for one sentence are alike, and would pass for independent evidence if they
    stood side by side. The difference is that of the corpora of all seeds together.

    Args:
        score: what to compare by.
        ours: [N, C] for each seed.
        theirs: the same, seed by seed.

    Returns:
        The difference; the 95 % percentile interval of a paired bootstrap (Koehn 2004); the two-sided p of
        approximate randomisation (Riezler and Maxwell 2005), exact where the systems differ in few sentences.
    """
    our, their = np.sum(ours, axis=0), np.sum(theirs, axis=0)  # [N, C]
    difference = score.value(our.sum(axis=0)) - score.value(their.sum(axis=0))
    return SentenceTest(difference, *bootstrap(score, our, their), randomise(score, our, their))


def bootstrap(score: SentenceCounts, our: Counts, their: Counts) -> tuple[float, float]:
    """The 95 % interval of ours - theirs, over test sets drawn from the sentences; [N, C] each."""

    def difference(rows: NDArray[np.int64]) -> float:
        drawn = np.bincount(rows, minlength=len(our))  # [N]: how often each sentence is
        return score.value(drawn @ our) - score.value(drawn @ their)

    found = stats.bootstrap(
        (np.arange(len(our)),),
        difference,
        n_resamples=RESAMPLES,
        batch=BATCH,
        vectorized=False,
        method="percentile",
        rng=np.random.default_rng(SEED),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def randomise(score: SentenceCounts, our: Counts, their: Counts) -> float:
    """How often the systems differ at least as much when outputs change sides at random; [N, C] each."""
    differ = (our != their).any(axis=1)
    if differ.sum() < 2:
        return 1.0  # one sentence on either side: the same difference, the other way round
    fixed = our[~differ].sum(axis=0)  # [C]: the same whatever changes sides
    our, their = our[differ], their[differ]  # [D, C]

    def difference(left: NDArray[np.float64], right: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        """Of the corpora on two sides: [..., D], 0 where our output stands there and 1 where theirs does."""
        on_left = fixed + right @ our + left @ their  # [..., C]
        on_right = fixed + left @ our + right @ their  # [..., C]
        values = np.apply_along_axis(score.value, -1, np.stack([on_left, on_right]))  # [2, ...]
        return np.asarray(values[0] - values[1])

    found = stats.permutation_test(
        (np.zeros(len(our)), np.ones(len(our))),
        difference,
        permutation_type="samples",
        n_resamples=TRIALS,
        batch=BATCH,
        vectorized=True,
        rng=np.random.default_rng(SEED),
    )
    return float(found.pvalue)
