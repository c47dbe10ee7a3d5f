"""Aggregates over runs, by the definitions of rliable (Agarwal et al., 2021, arXiv 2108.13264).

The scores of a model are a matrix [R, M]: R runs (seeds) on M tasks.
Statistics take matrices [..., R, M], such as all resamples of a bootstrap.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from attnlab.report.statistics import CONFIDENCE

Scores = NDArray[np.float64]

RESAMPLES = 2000
SEED = 12345  # fixed, so that reports are reproducible


def interquartile_mean(scores: Scores) -> Scores:
    """Return the mean of the middle half of all R · M scores [..., R, M]; shape [...].

    ⌊R · M / 4⌋ scores are left out at each end, so that with three scores it is the mean.
    """
    return np.asarray(stats.trim_mean(scores.reshape(*scores.shape[:-2], -1), 0.25, axis=-1))


def probability_of_improvement(ours: Scores, theirs: Scores) -> Scores:
    """Return the probability that a run of ours has a higher score than one of theirs, [..., R, M] each.

    It is the mean over tasks of the share of pairs of runs in which ours is higher; a tie counts as half.
    The shape is [...].
    """
    differences = ours[..., :, None, :] - theirs[..., None, :, :]  # [..., R, R', M]
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
    drawn = [[rng.integers(len(group), size=group.shape) for group in groups] for _ in range(RESAMPLES)]
    resampled = (
        np.take_along_axis(group[None], np.stack(runs), axis=1)  # [N, R, M]
        for group, runs in zip(groups, zip(*drawn, strict=True), strict=True)
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(statistic(*resampled), [tail, 1 - tail], axis=0)
    return low, high
