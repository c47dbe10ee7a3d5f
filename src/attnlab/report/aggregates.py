"""Aggregates over runs, by the definitions of rliable (Agarwal et al., 2021, arXiv 2108.13264).

The scores of a variant are a matrix [R, M]: R runs (seeds) on M tasks, the test sets of one metric.
Statistics take matrices [..., R, M], such as all resamples of a bootstrap. Scores must be finite, since
comparisons with NaN would count as lower scores.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from attnlab.metrics import registry
from attnlab.report.comparison import Comparison
from attnlab.report.statistics import CONFIDENCE, Estimate
from attnlab.report.study import Study
from attnlab.report.tables import Table, TableColumns, format_estimate, point

Scores = NDArray[np.float64]

MIN_RUNS = 3
"""Fewer runs of every variant give no aggregates."""

RESAMPLES = 2000
SEED = 12345  # fixed, so that reports are reproducible
BATCH = 100  # resamples at a time; limits memory to 30 MB for 1,000 scores and 300 thresholds

NOTE = (
    "Definitions of rliable (Agarwal et al., 2021). Interquartile mean: of the middle half of the runs, of "
    "all if there are three. Probability that a run has a better score than one of the reference; a tie "
    "counts as half. In brackets: 95 % percentile interval of the stratified bootstrap, which is too narrow "
    "for few runs."
)


def interquartile_mean(scores: Scores) -> Scores:
    """Return the mean of the middle half of all R · M scores [..., R, M]; shape [...].

    ⌊R · M / 4⌋ scores are left out at each end, so that with three scores it is the mean.
    """
    _require_finite(scores)
    ranked = np.sort(scores.reshape(*scores.shape[:-2], -1))  # [..., R · M]
    cut = ranked.shape[-1] // 4
    return np.asarray(ranked[..., cut : ranked.shape[-1] - cut].mean(axis=-1))


def probability_of_improvement(ours: Scores, theirs: Scores) -> Scores:
    """Return the probability that a run of ours has a higher score than one of theirs, [..., R, M] each.

    It is the mean over tasks of the share of pairs of runs in which ours is higher; a tie counts as half.
    The shape is [...].
    """
    differences = ours[..., :, None, :] - theirs[..., None, :, :]  # [..., R, R', M]
    _require_finite(differences)
    return np.asarray(((differences > 0) + 0.5 * (differences == 0)).mean(axis=(-3, -2, -1)))


def stratified_bootstrap(statistic: Callable[..., Scores], *groups: Scores) -> tuple[Scores, Scores]:
    """Return the ends of the 95 % percentile interval of a statistic of groups of scores, [R, M] each.

    The runs of a group are resampled within each task, which `scipy.stats.bootstrap` does not do. The
    interval is too narrow for few runs: its coverage of a mean of normal scores is about 74 % with three
    runs, 84 % with five and 90 % with ten.

    Args:
        statistic: maps resamples [N, R, M] of each group to values [N, ...].
        *groups: scores of different runs on the same tasks.
    """
    rng = np.random.default_rng(SEED)
    values = []
    for _ in range(RESAMPLES // BATCH):
        drawn = [[rng.integers(len(group), size=group.shape) for group in groups] for _ in range(BATCH)]
        resampled = (
            np.take_along_axis(group[None], np.stack(runs), axis=1)  # [N, R, M]
            for group, runs in zip(groups, zip(*drawn, strict=True), strict=True)
        )
        values.append(statistic(*resampled))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(values), [tail, 1 - tail], axis=0)
    return low, high


def _require_finite(scores: Scores) -> None:
    if not np.isfinite(scores).all():
        raise ValueError("scores must be finite")


def score_matrices(study: Study) -> tuple[list[str], dict[str, Scores]]:
    """Return the tasks, and the scores [R, M] of each variant in the runs that have all M of them.

    The tasks are the first metric of the study on every test set that it is compared on. There are none if no
    variant has `MIN_RUNS` such runs.
    """
    first = [registry.name(metric) for metric in study.metrics[:1]]
    tasks = [metric for metric in study.metrics if registry.name(metric) in first]
    scores = {
        variant: [row for run in runs if None not in (row := [run.score(task) for task in tasks])]
        for variant, runs in study.by_variant().items()
    }
    if not tasks or max(map(len, scores.values()), default=0) < MIN_RUNS:
        return [], {}
    return tasks, {variant: np.array(rows, float).reshape(-1, len(tasks)) for variant, rows in scores.items()}


def aggregates_table(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """Build the table of aggregates; empty if no variant has enough runs."""
    tasks, matrices = score_matrices(study)
    if not tasks:
        return []
    omitted = [variant for variant, scores in matrices.items() if not len(scores)]
    compared = {(each.variant, each.reference) for each in comparisons if each.metric == tasks[0]}
    references = {reference for _, reference in compared}
    reference = references.pop() if len(references) == 1 else None
    if reference in omitted:
        reference = None
    shown = {variant: scores for variant, scores in matrices.items() if variant not in omitted}
    metric, columns = registry.metric(tasks[0]), TableColumns()
    columns.add("runs", (point(len(scores)) for scores in shown.values()), digits=0)
    columns.add(
        f"interquartile mean of {metric.heading}",
        (_with_interval(interquartile_mean, scores) for scores in shown.values()),
        digits=metric.digits,
        scale=metric.scale,
    )
    if reference is not None:
        theirs = metric.sign * matrices[reference]
        improvements = (
            None
            if (variant, reference) not in compared
            else _with_interval(probability_of_improvement, metric.sign * scores, theirs)
            for variant, scores in shown.items()
        )
        name = f"probability of improvement over {reference}"
        columns.add(name, improvements, digits=2, write=partial(format_estimate, missing=""))
    notes = [NOTE, *([f"Without a run that has all scores: {', '.join(omitted)}."] if omitted else [])]
    return [columns.table("aggregates", "Aggregates over runs", {"variant": [*shown]}, notes)]


def _with_interval(statistic: Callable[..., Scores], *groups: Scores) -> Estimate:
    low, high = stratified_bootstrap(statistic, *groups)
    return Estimate(float(statistic(*groups)), float(low), float(high), len(groups[0]))
