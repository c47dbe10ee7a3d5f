"""Aggregates over runs, by the definitions of rliable."""

import numpy as np
import pytest

from attnlab.report.aggregates import interquartile_mean, probability_of_improvement, stratified_bootstrap


def test_interquartile_mean_leaves_out_a_quarter_at_each_end() -> None:
    scores = np.array([[9.0, 1.0], [2.0, 3.0], [4.0, 100.0], [5.0, 0.0]])
    assert interquartile_mean(scores) == (2 + 3 + 4 + 5) / 4  # without 0, 1 and 9, 100
    assert interquartile_mean(np.array([[1.0], [2.0], [9.0]])) == 4  # of three scores, none is left out
    assert interquartile_mean(np.array([[1.0], [2.0], [9.0], [4.0], [3.0]])) == 3


def test_probability_of_improvement_counts_ties_as_half() -> None:
    ours, theirs = np.array([[1.0], [2.0], [3.0]]), np.array([[0.0], [2.0]])
    assert probability_of_improvement(ours, theirs) == (1 + 0 + 1 + 0.5 + 1 + 1) / 6
    # The mean over tasks of 1 and 0: runs are compared within a task
    apart = np.array([[1.0, 10.0], [1.0, 10.0]]), np.array([[0.0, 20.0]])
    assert probability_of_improvement(*apart) == 0.5


def test_bootstrap_resamples_the_runs_within_each_task() -> None:
    scores = np.array([[0.0, 100.0], [1.0, 101.0]])
    seen = set()

    def statistic(resampled: np.ndarray) -> np.ndarray:
        assert set(resampled[..., 0].ravel()) <= {0, 1}
        assert set(resampled[..., 1].ravel()) <= {100, 101}
        seen.update(tuple(sample.ravel()) for sample in resampled)
        return resampled.mean(axis=(1, 2))

    low, high = stratified_bootstrap(statistic, scores)
    assert len(seen) == 16  # 2 draws of 2 runs in each task, independently
    assert (low, high) == (50, 51)  # 1 of 16 samples has each extreme mean: more than 2.5 %


def test_bootstrap_intervals_of_two_groups_and_of_vectors() -> None:
    ours, theirs = np.array([[5.0], [6.0], [7.0]]), np.array([[1.0], [2.0]])
    assert stratified_bootstrap(probability_of_improvement, ours, theirs) == (1, 1)
    low, high = stratified_bootstrap(lambda runs: (runs > np.array([0.0, 5.5, 9.0])).mean(axis=1), ours)
    assert low == pytest.approx([1, 0, 0])
    assert high == pytest.approx([1, 1, 0])


def test_statistics_of_many_resamples_equal_those_of_each() -> None:
    ours, theirs = np.random.default_rng(0).integers(0, 9, size=(2, 4, 5, 3)).astype(float)
    for index, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert interquartile_mean(ours)[index] == interquartile_mean(our)
        assert probability_of_improvement(ours, theirs)[index] == probability_of_improvement(our, their)
