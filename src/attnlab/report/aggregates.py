"""Aggregates over the runs of each variant: interquartile mean and probability of improvement.

The tasks are the test sets of the first metric of the study; see `attnlab.report.aggregation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from attnlab.metrics import registry
from attnlab.report.aggregation import (
    Scores,
    interquartile_mean,
    probability_of_improvement,
    stratified_bootstrap,
)
from attnlab.report.comparison import Comparison
from attnlab.report.statistics import Estimate
from attnlab.report.study import RunRecord, Study
from attnlab.report.table import Cell, Column, Table
from attnlab.report.tables import estimate_cell, heading

MIN_RUNS = 3
"""Fewer runs of every variant give no aggregates."""

NOTE = (
    "Definitions of rliable (Agarwal et al., 2021). Interquartile mean: of the middle half of the runs, of "
    "all if there are three. Probability that a run has a better score than one of the reference; a tie "
    "counts as half. In brackets: 95 % percentile interval of the stratified bootstrap, which is too narrow "
    "for few runs."
)


def tasks(study: Study) -> list[str]:
    """Return the first metric of the study on every test set that it is compared on."""
    first = [registry.name(metric) for metric in study.metrics[:1]]
    return [metric for metric in study.metrics if registry.name(metric) in first]


def score_matrix(runs: Sequence[RunRecord], metrics: Sequence[str]) -> Scores:
    """Return the scores [R, M] of the runs that have all M metrics."""
    rows = [[run.scores.get(metric, float("nan")) for metric in metrics] for run in runs]
    return np.array([row for row in rows if all(map(isfinite, row))]).reshape(-1, len(metrics))


def aggregates_table(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """Build the table of aggregates; empty without scores, or if no variant has `MIN_RUNS` runs."""
    metrics = tasks(study)
    if not metrics:
        return []
    groups = {variant: score_matrix(runs, metrics) for variant, runs in study.by_variant().items()}
    if max((len(scores) for scores in groups.values()), default=0) < MIN_RUNS:
        return []
    references = {row.reference for row in comparisons if row.metric == metrics[0]}
    reference = references.pop() if len(references) == 1 else None
    if reference is not None and not len(groups[reference]):
        reference = None
    columns = [
        *(Column("variant", numeric=False), Column("runs")),
        Column(f"interquartile mean of {heading(metrics[0])}"),
        *([] if reference is None else [Column(f"probability of improvement over {reference}")]),
    ]
    sign = -1 if registry.better(metrics[0]) == "lower" else 1
    rows = []
    for variant, scores in groups.items():
        if not len(scores):
            continue
        row = [Cell(variant, variant), Cell(str(len(scores)), len(scores)), _mean(scores, metrics[0])]
        if reference is not None:
            row.append(Cell("") if variant == reference else _improvement(sign, scores, groups[reference]))
        rows.append(row)
    omitted = [variant for variant, scores in groups.items() if not len(scores)]
    notes = [NOTE, *([f"Without a run that has all scores: {', '.join(omitted)}."] if omitted else [])]
    return [Table("aggregates", "Aggregates over runs", columns, rows, notes)]


def _mean(scores: Scores, metric: str) -> Cell:
    """Format the interquartile mean and its interval."""
    low, high = stratified_bootstrap(interquartile_mean, scores)
    result = Estimate(float(interquartile_mean(scores)), float(low), float(high), len(scores))
    return estimate_cell(result, digits=registry.digits(metric), scale=registry.scale(metric))


def _improvement(sign: int, ours: Scores, theirs: Scores) -> Cell:
    """Format the probability of improvement and its interval; `sign` is -1 if lower scores are better."""
    ours, theirs = sign * ours, sign * theirs
    low, high = stratified_bootstrap(probability_of_improvement, ours, theirs)
    probability = float(probability_of_improvement(ours, theirs))
    return estimate_cell(Estimate(probability, float(low), float(high), len(ours)), digits=2)
