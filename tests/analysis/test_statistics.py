"""Confidence intervals and the correction of p-values."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlab.analysis.statistics import estimate, holm

T_2 = 4.302652729911275  # 97.5 % quantile of Student's t with 2 degrees of freedom
P_VALUES = st.lists(st.floats(0, 1), max_size=12)


def test_interval_of_three_scores() -> None:
    result = estimate([2.0, 4.0, 6.0])  # mean 4, standard deviation 2
    assert result.mean == 4
    assert result.half_width == pytest.approx(T_2 * 2 / sqrt(3))
    assert result.low == pytest.approx(4 - 4.968, abs=1e-3)
    assert result.high == pytest.approx(4 + 4.968, abs=1e-3)


def test_single_score_has_no_interval() -> None:
    result = estimate([3.5])
    assert (result.mean, result.half_width, result.low, result.high, result.count) == (
        3.5,
        None,
        None,
        None,
        1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_have_95_percent_coverage(seeds: int) -> None:
    draw = np.random.default_rng(seeds)
    studies = [estimate(list(draw.normal(30, 2, seeds))) for _ in range(4000)]
    covered = np.mean([result.low <= 30 <= result.high for result in studies])  # type: ignore[operator]
    assert covered == pytest.approx(0.95, abs=0.02)  # standard error 0.0034


def test_holm_correction_of_four_p_values() -> None:
    # Sorted: 0.005 · 4, 0.01 · 3, 0.03 · 2, 0.04 · 1; the last is raised to the one before
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1, 1]
    assert holm([]) == []


@given(P_VALUES, st.floats(0.001, 0.999))
def test_holm_equals_the_step_down_procedure(p_values: list[float], level: float) -> None:
    rejected = set()
    for step, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - step) > level:
            break  # the procedure stops at the first that is not rejected
        rejected.add(index)
    assert {index for index, p in enumerate(holm(p_values)) if p <= level} == rejected


def test_holm_controls_the_family_wise_error_rate() -> None:
    draw = np.random.default_rng(0)
    error_rate = np.mean([min(holm(list(draw.uniform(size=10)))) < 0.05 for _ in range(2000)])
    assert error_rate == pytest.approx(1 - (1 - 0.05 / 10) ** 10, abs=0.02)  # 0.049, standard error 0.005
