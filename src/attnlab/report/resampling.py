"""Bootstrap intervals and randomisation tests over the sentences of a test set.

They answer whether trained networks would also differ on other sentences. A corpus score is a function of
counts that are summed over sentences: [N, C] holds C counts of N sentences.

- sacreBLEU's test (`sacrebleu --paired-ar`) counts the random assignments whose difference is *larger* than
  the observed one, where the test requires *at least as large*: p = 0.0001 for two equal systems.
- `scipy.stats.permutation_test` gives the same p-values, and takes 10 to 40 times as long.
- `scipy.stats.bootstrap` resamples rows instead of their counts, which does not fit into memory here.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnlab.files.predictions import Prediction
from attnlab.metrics import registry
from attnlab.metrics.sentence_counts import Counts, SentenceCounts
from attnlab.report.record import RunRecord

SEED = 12345  # fixed, so that reports are reproducible
BOOTSTRAP_RESAMPLES = 1000
PERMUTATIONS = 9999
BATCH = 2**17  # sentences of resamples at a time, 1 MB, which fits into caches


class SentenceTest(NamedTuple):
    """Result of a paired test: the difference ours - theirs, its 95 % interval and the p-value."""

    difference: float
    low: float
    high: float
    p: float


def sentences_of(predictions: Sequence[Prediction]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the sources and references of the inputs, which are equal for runs with the same test set."""
    return [(prediction.source, prediction.references) for prediction in predictions]


def paired_test(score: SentenceCounts, ours: Sequence[Counts], theirs: Sequence[Counts]) -> SentenceTest:
    """Compare the outputs of two systems for the same N ≥ 2 sentences, given as counts [N, C] of each seed.

    The counts of a sentence are summed over the seeds, because outputs of several seeds for the same sentence
    are not independent. The difference is that of the corpora of all seeds together. The interval is the
    percentile interval of the paired bootstrap (Koehn, 2004); the two-sided p-value is that of approximate
    randomisation (Riezler and Maxwell, 2005), exact if few sentences differ.
    """
    our, their = _sum_over_seeds(ours), _sum_over_seeds(theirs)  # [N, C]
    low, high = percentiles(
        [score.value(batch @ our) - score.value(batch @ their) for batch in resampled(len(our))]
    )
    difference = float(score.value(our.sum(axis=0)) - score.value(their.sum(axis=0)))
    return SentenceTest(difference, low, high, randomisation_p_value(score, our, their))


def score_interval(score: SentenceCounts, counts: Sequence[Counts]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a corpus score of all seeds together, [N, C] for each."""
    summed = _sum_over_seeds(counts)
    return percentiles([score.value(batch @ summed) for batch in resampled(len(summed))])


def interval_over_sentences(runs: Sequence[RunRecord], metric: str) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of a metric of a variant, over the sentences of its runs together.

    It needs outputs for one test set, and a metric with counts of sentences and one tokenizer; else it is
    that of results.csv, or None.
    """
    scored = [run for run in runs if run.score(metric) is not None]
    tokenizers = {run.tokenizer(metric) for run in scored}
    score = registry.metric(metric).sentence_counts(tokenizers.pop()) if len(tokenizers) == 1 else None
    decoded = [outputs for run in scored if (outputs := run.predictions.get(registry.split(metric)))]
    same = [outputs for outputs in decoded if sentences_of(outputs) == sentences_of(decoded[0])]
    if score is None or not same or len(same) < len(decoded) or len(same[0]) < 2:
        return next((run.over_sentences[metric] for run in runs if metric in run.over_sentences), None)
    return score_interval(score, [score.count(outputs) for outputs in same])


def _sum_over_seeds(counts: Sequence[Counts]) -> Counts:
    """Return the summed counts [N, C]."""
    summed: Counts = np.sum(counts, axis=0)
    if not np.isfinite(summed).all():
        raise ValueError("counts must be finite")
    return summed


def percentiles(resampled: Sequence[Counts]) -> tuple[float, float]:
    """Return the ends of the 95 % percentile interval of the batches of resampled values."""
    values = np.concatenate(resampled)
    if not np.isfinite(values).all():
        raise ValueError("resampled values must be finite")
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def resampled(sentences: int) -> Iterator[NDArray[np.float64]]:
    """Yield batches [R, N] of how often each of N sentences is in each resample."""
    yield from (counts.astype(float) for counts in _resamples(sentences))


@lru_cache(maxsize=8)
def _resamples(sentences: int) -> list[NDArray[np.uint16]]:
    """Return batches of how often each of N sentences is in each resample with replacement, [R, N]."""
    rng = np.random.default_rng(SEED)
    batches = []
    for rows in _batches(BOOTSTRAP_RESAMPLES, sentences):
        drawn = rng.integers(sentences, size=(rows, sentences)) + sentences * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        batches.append(counts.astype(np.uint16))
    return batches


def randomisation_p_value(score: SentenceCounts, our: Counts, their: Counts) -> float:
    """Return the two-sided p-value of paired approximate randomisation; counts [N, C] each.

    p is the probability of a difference at least as large when the two outputs of each sentence are swapped
    at random.
    """
    differ = (our != their).any(axis=1)
    if differ.sum() < 2:
        return 1.0  # swapping one sentence only changes the sign of the difference
    # [C]: the sums of both sides without a swap, and [D, C]: how a swap changes the left one
    left, right, change = our.sum(axis=0), their.sum(axis=0), (their - our)[differ]

    def difference(swapped: NDArray[np.float64]) -> Counts:
        """Differences between the two sides; [R, D] is 1 where the outputs of a sentence are swapped."""
        moved = swapped @ change  # [R, C]; exact, since counts are whole numbers
        return score.value(left + moved) - score.value(right - moved)

    observed = difference(np.zeros((1, len(change))))
    null = np.concatenate([difference(swapped) for swapped in _assignments(len(change))])
    tolerance = 100 * np.finfo(float).eps * abs(observed)
    drawn = int(len(null) != 2 ** len(change))  # the observed assignment is one more if the others are drawn
    extreme = min((null <= observed + tolerance).sum(), (null >= observed - tolerance).sum())
    return float(min(1.0, 2 * (extreme + drawn) / (len(null) + drawn)))


def _assignments(sentences: int) -> Iterator[NDArray[np.float64]]:
    """Yield which outputs are swapped, [R, D]: all assignments if there are few, else random ones.

    The random ones are those of `scipy.stats.permutation_test`, from the last bit of a random 32-bit number.
    """
    if 2**sentences <= PERMUTATIONS:
        yield (np.arange(2**sentences)[:, None] >> np.arange(sentences) & 1).astype(float)
        return
    rng = np.random.default_rng(SEED)
    for rows in _batches(PERMUTATIONS, sentences):
        drawn = rng.integers(2**32, size=(rows, sentences), dtype=np.uint32)
        yield (~drawn.astype(np.uint8) & 1).astype(float)


def _batches(resamples: int, sentences: int) -> list[int]:
    """Return numbers of resamples with at most `BATCH` sentences together, at least 1."""
    size = max(1, BATCH // sentences)
    return [min(size, resamples - start) for start in range(0, resamples, size)]
