"""Figures of the final scores of a study: means with intervals, and performance profiles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attnlab.metrics import registry
from attnlab.plotting.text import truncate
from attnlab.report import aggregates
from attnlab.report.aggregation import performance_profile, stratified_bootstrap
from attnlab.report.figure_parts import (
    MAX_NAME,
    MAX_POINTS,
    Groups,
    StudyFigure,
    Styles,
    axis_label,
    bounds_of,
    label_of,
    new_figure,
    title_of,
    values_of,
)
from attnlab.report.statistics import estimate
from attnlab.report.study import Study

ROW_HEIGHT = 0.3  # inches per variant, in figures with one row per variant


def scores(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    """Draw one row per variant with its seeds, their mean and its interval."""
    several_splits = len({registry.split(metric) == "val" for metric in study.metrics}) > 1
    for metric in study.metrics:
        bounds = bounds_of(metric)
        figure, axes = new_figure(height=0.75 + ROW_HEIGHT * len(groups))
        axes.grid(visible=False, axis="y")
        for row, (variant, runs) in enumerate(groups.items()):
            style = styles[variant]
            values = [registry.scale(metric) * value for value in values_of(runs, metric)]
            if not values:
                continue
            mean = estimate(values, bounds)
            axes.plot(
                values,
                [row] * len(values),
                "o",
                color=style.colour,
                alpha=0.35,
                markersize=3.5,
                clip_on=False,
            )
            spread = None
            if mean.low is not None and mean.high is not None:
                spread = [[max(0, mean.mean - mean.low)], [max(0, mean.high - mean.mean)]]  # rounding errors
            axes.errorbar(
                mean.mean,
                row,
                xerr=spread,
                fmt=style.marker,
                color=style.colour,
                capsize=2.5,
                clip_on=False,
            )
        axes.set_yticks(range(len(groups)), labels=[truncate(variant, MAX_NAME) for variant in groups])
        axes.set_ylim(len(groups) - 0.4, -0.6)
        left, right = axes.get_xlim()
        axes.set_xlim(max(left, bounds[0]), min(right, bounds[1]))
        axes.set_xlabel(axis_label(metric, split=several_splits))
        name = metric.removeprefix("test/")
        yield StudyFigure(
            f"scores-{(name if several_splits else name.removeprefix('val/')).replace('/', '-')}",
            f"{title_of(metric, split=several_splits)} by variant",
            "Small dots are seeds, large markers their mean, bars its 95\u00a0% interval, on a transformed "
            "scale for scores with bounds.",
            figure,
            needs_legend=False,
        )


def performance_profiles(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    """Draw the share of runs whose score is above each threshold (rliable), if a variant has enough runs."""
    metrics = aggregates.tasks(study)
    if not metrics:
        return
    matrices = {variant: aggregates.score_matrix(runs, metrics) for variant, runs in groups.items()}
    matrices = {variant: scores for variant, scores in matrices.items() if len(scores)}
    if max(map(len, matrices.values()), default=0) < aggregates.MIN_RUNS:
        return
    values = np.concatenate([scores.ravel() for scores in matrices.values()])
    thresholds = np.linspace(values.min(), values.max(), MAX_POINTS)
    profile = partial(performance_profile, thresholds=thresholds)
    x, (figure, axes) = registry.scale(metrics[0]) * thresholds, new_figure()
    for variant, scores in matrices.items():
        style = styles[variant]
        axes.plot(x, 100 * profile(scores), color=style.colour, linestyle=style.dash, drawstyle="steps-post")
        low, high = stratified_bootstrap(profile, scores)
        axes.fill_between(x, 100 * low, 100 * high, color=style.colour, alpha=0.14, linewidth=0, step="post")
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"threshold of {axis_label(metrics[0])}")
    axes.set_ylabel("runs above the threshold, in %")
    caption = (
        "Share of runs with a score above each threshold; bands are 95\u00a0% stratified bootstrap intervals."
    )
    title = f"Performance profile of {label_of(metrics[0])}"
    yield StudyFigure("performance-profile", title, caption, figure, dashed=True)
