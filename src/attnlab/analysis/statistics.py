"""What may be said of variants: means with intervals, and tests that two of them differ.

Two questions, each with its own tests, and each answered where it can be:

Over **seeds**: would the variants differ if they were trained anew? The runs of two variants are paired by
seed, and the differences put to a paired t test. Wilcoxon's signed-rank test would assume less, but cannot
say p < 0.05 of five pairs or fewer (its smallest p is 2 / 2ⁿ), and five is what people have.

Over **sentences**: would these very networks differ on other sentences? See
`attnlab.analysis.significance`. The runs of all seeds that both variants finished on the same test set
count together.

All p of one question, over every pair of variants and every metric, are one family, corrected by Holm's
method: the chance to claim even one difference that is none is at most 5 %. Intervals are not corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from math import isfinite, nan
from pathlib import Path
from typing import Literal

import numpy as np
from scipy import stats

from attnlab.analysis import significance
from attnlab.analysis.collect import SEPARATOR, RunRecord, Study
from attnlab.errors import UserError
from attnlab.metrics import registry
from attnlab.metrics.sentence_counts import Counts

Pair = tuple[RunRecord, RunRecord]
"""Two runs of one seed: the variant's and the reference's."""

Task = tuple[str, tuple[str, str]]
"""A metric, and the variant and the reference to compare by it."""

CONFIDENCE = 0.95
LEVEL = 0.05
"""A corrected p below it is called a difference."""

BASELINE = "none"
"""What variants are compared with unless another is named."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and its 95 % interval: mean ± half_width."""

    mean: float
    half_width: float | None
    """None for a single value, which tells nothing of its spread."""
    count: int

    @property
    def low(self) -> float | None:
        """The lower end."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The upper end."""
        return None if self.half_width is None else self.mean + self.half_width


@dataclass(frozen=True)
class Comparison:
    """One variant against another in one metric: variant - reference, in the metric's own unit."""

    metric: str
    variant: str
    reference: str
    over: Literal["seeds", "sentences"]
    seeds: int
    """How many seeds both have."""
    sentences: int | None = None
    """Of the test set, where it is over sentences."""
    difference: float | None = None
    low: float | None = None
    """Of the 95 % interval, uncorrected."""
    high: float | None = None
    effect: float | None = None
    """Over seeds, Cohen's d_z: the mean difference by the standard deviation of differences."""
    p: float | None = None
    """Uncorrected; None where there is nothing to test."""
    corrected: float | None = None
    """By Holm, over the family."""
    family: int = 0
    """How many p were corrected together."""

    @property
    def significant(self) -> bool:
        """Whether a difference may be claimed."""
        return self.corrected is not None and self.corrected < LEVEL

    @property
    def sentence(self) -> str:
        """What it says, in words."""
        called, seeds = registry.label(self.metric), f"{self.seeds} seed{'' if self.seeds == 1 else 's'}"
        if self.difference is None:
            return f"{self.variant} and {self.reference} have no seed with {called} in common: no comparison."
        ahead, behind = self.variant, self.reference
        sign = -1 if registry.better(self.metric) == "lower" else 1
        if self.difference * sign < 0:
            ahead, behind, sign = behind, ahead, -sign
        amount = registry.amount(self.metric, self.difference * sign)
        lead = f"{ahead} {'beats' if registry.better(self.metric) else 'exceeds'} {behind} by {amount}"
        if self.difference == 0:
            lead = f"{ahead} and {behind} have the same {called}"
        if self.over == "seeds" and self.seeds == 1:
            return f"{lead} in one seed: nothing can be concluded across seeds."
        if self.corrected is None or self.low is None or self.high is None:
            return f"{lead} in each of {seeds}: without spread there is no test."
        low, high = (registry.number(self.metric, end) for end in sorted((self.low * sign, self.high * sign)))
        p = "p < 0.001" if self.corrected < 0.001 else f"p = {self.corrected:.3f}"
        holm = "" if self.family == 1 else f" (Holm, {self.family} tests)"
        basis = seeds if self.sentences is None else f"{self.sentences:,} sentences, {seeds}"
        if self.significant:
            return f"{lead} [{low}, {high}], {p}{holm}, {basis}."
        return (
            f"No difference shown between {ahead} and {behind}: {amount} [{low}, {high}], {p}{holm}, {basis}."
        )


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of scores of several seeds and the interval of Student's t: x̄ ± t₀.₉₇₅,ₙ₋₁ · s / √n."""
    n = len(values)
    if n == 1:
        return Estimate(values[0], None, 1)
    half_width = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n)
    return Estimate(float(np.mean(values)), float(half_width), n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) step-down correction: the k-th smallest of m, k from 0, times m - k; never falling."""
    order = np.argsort(p_values)
    steps = np.asarray(p_values)[order] * (len(order) - np.arange(len(order)))
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return [float(p) for p in corrected]


def compare(
    study: Study,
    *,
    reference: str | None = None,
    all_pairs: bool = False,
    progress: Callable[[Sequence[Task]], Iterable[Task]] = lambda tasks: tasks,
) -> list[Comparison]:
    """Compare variants in each of the study's metrics: over seeds, and where it can be over sentences.

    Args:
        study: the runs; the finished ones count.
        reference: the variant that the others are compared with; by default "none", and where there is no
            such variant, or several, every variant is compared with every other.
        all_pairs: compare every variant with every other in any case.
        progress: is given all that is to be compared, and hands it out bit by bit.

    Returns:
        Nothing of a metric that one of two variants has no score of, as a model without attention has none of
        its weights: tables show that already.

    Raises:
        UserError: if there is no such reference.
    """
    runs = {run.directory: run for run in study.finished}

    @cache  # a variant's outputs are counted once, however many it is compared with
    def counts(metric: str, directory: Path) -> Counts:
        metric_counts = registry.sentence_counts(metric)
        assert metric_counts is not None
        predictions = runs[directory].predictions
        return metric_counts.count(
            [prediction.hypothesis for prediction in predictions],
            [prediction.reference for prediction in predictions],
        )

    groups = study.by_variant()
    over_seeds, over_sentences = [], []
    for metric, (variant, other) in progress(
        list(product(study.metrics, _pairs(study.variants, reference, all_pairs)))
    ):
        if not all(any(_scored(run, metric) for run in groups[name]) for name in (variant, other)):
            continue
        pairs = _paired(groups[variant], groups[other], metric)
        blank = Comparison(metric, variant, other, "seeds", seeds=len(pairs))
        over_seeds.append(_over_seeds(blank, pairs))
        over_sentences += _over_sentences(blank, pairs, counts)
    return [*_corrected(over_seeds), *_corrected(over_sentences)]


def _pairs(variants: Sequence[str], reference: str | None, all_pairs: bool) -> list[tuple[str, str]]:
    """What is compared with what: (variant, reference)."""
    if reference is not None and reference not in variants:
        raise UserError(
            f"no finished run of {reference!r} to compare with: choose from {', '.join(variants)}"
        )
    baselines = [variant for variant in variants if variant.partition(SEPARATOR)[0] == BASELINE]
    if reference is None and len(baselines) == 1:
        (reference,) = baselines
    if all_pairs or reference is None:
        # The reference goes last, so that it is what others are compared with.
        return list(combinations(sorted(variants, key=lambda variant: variant == reference), 2))
    return [(variant, reference) for variant in variants if variant != reference]


def _paired(ours: Sequence[RunRecord], theirs: Sequence[RunRecord], metric: str) -> list[Pair]:
    """The runs of one seed side by side, for the seeds that both have a score of; by seed."""
    scored = [{run.seed: run for run in runs if _scored(run, metric)} for runs in (ours, theirs)]
    return [(scored[0][seed], scored[1][seed]) for seed in sorted(scored[0].keys() & scored[1].keys())]


def _scored(run: RunRecord, metric: str) -> bool:
    return isfinite(run.scores.get(metric, nan))


def _over_seeds(blank: Comparison, pairs: Sequence[Pair]) -> Comparison:
    """Student's paired t test of the scores."""
    if not pairs:
        return blank
    ours, theirs = np.array([[run.scores[blank.metric] for run in pair] for pair in pairs]).T  # [n], [n]
    differences = ours - theirs
    found = replace(blank, difference=float(differences.mean()))
    if len(pairs) == 1 or np.ptp(differences) < 1e-9:
        return found
    test = stats.ttest_rel(ours, theirs)
    low, high = test.confidence_interval(CONFIDENCE)
    effect = differences.mean() / differences.std(ddof=1)
    return replace(found, low=float(low), high=float(high), effect=float(effect), p=float(test.pvalue))


def _over_sentences(
    blank: Comparison, pairs: Sequence[Pair], counts: Callable[[str, Path], Counts]
) -> list[Comparison]:
    """The paired test over sentences; none where outputs of the same test set cannot be had."""
    name = registry.name(blank.metric)
    split = registry.split(blank.metric)
    read = [pair for pair in pairs if pair[0].split == pair[1].split == split]
    metric_counts = registry.sentence_counts(name)
    if metric_counts is None or not read:
        return []
    test_set = _texts(read[0][0])
    same = [pair for pair in read if all(_texts(run) == test_set for run in pair)]
    if len(test_set) < 2 or not same:
        return []
    ours, theirs = ([counts(name, pair[side].directory) for pair in same] for side in (0, 1))
    found = significance.compare(metric_counts, ours, theirs)
    return [
        replace(blank, over="sentences", seeds=len(same), sentences=len(test_set), **found._asdict()),
    ]


def _texts(run: RunRecord) -> list[tuple[str, str]]:
    """The test set as the run saw it."""
    return [(prediction.source, prediction.reference) for prediction in run.predictions]


def _corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons, their p corrected as one family."""
    tested = [comparison.p for comparison in comparisons if comparison.p is not None]
    corrected = iter(holm(tested))
    return [
        comparison
        if comparison.p is None
        else replace(comparison, corrected=next(corrected), family=len(tested))
        for comparison in comparisons
    ]
