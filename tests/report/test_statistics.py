"""Confidence intervals and the correction of p-values."""

from math import exp, inf, isnan, log, nan, sqrt

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from attnlab.report.statistics import estimate, holm, t_test_p_value

T_2 = 4.302652729911275  # 97.5 % quantile of Student's t with 2 degrees of freedom
P_VALUES = st.lists(st.floats(0, 1), max_size=12)


def test_interval_of_three_scores() -> None:
    result = estimate([2.0, 4.0, 6.0])  # mean 4, standard deviation 2
    assert result.mean == 4
    assert result.low == pytest.approx(4 - T_2 * 2 / sqrt(3))
    assert result.high == pytest.approx(4 + T_2 * 2 / sqrt(3))


def test_interval_of_shares_is_symmetric_on_the_logit_scale() -> None:
    result = estimate([0.8, 0.9, 1.0], (0, 1))  # mean 0.9, standard deviation 0.1; logit(0.9) = log 9
    spread = T_2 * 0.1 / sqrt(3) / (0.9 * 0.1)
    assert result.low == pytest.approx(1 / (1 + exp(spread - log(9))))
    assert result.high == pytest.approx(1 / (1 + exp(-spread - log(9))))
    percent = estimate([80.0, 90.0, 100.0], (0, 100))
    assert (percent.low, percent.high) == pytest.approx((100 * result.low, 100 * result.high))


def test_interval_of_positive_values_is_symmetric_on_the_logarithmic_scale() -> None:
    result = estimate([1.0, 2.0, 3.0], (0, inf))  # mean 2, standard deviation 1
    factor = exp(T_2 / sqrt(3) / 2)
    assert (result.low, result.high) == pytest.approx((2 / factor, 2 * factor))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6), st.sampled_from([(0.0, 1.0), (0.0, inf)]))
@example([1.0, 1.0, 1.0], (0.0, 1.0))
@example([0.0, 0.0, 1e-300], (0.0, inf))
@example([0.1, 0.1, 0.1], (0.0, inf))
def test_intervals_stay_inside_the_bounds_and_contain_the_mean(
    values: list[float], bounds: tuple[float, float]
) -> None:
    result = estimate(values, bounds)
    assert bounds[0] <= result.low <= result.mean + 1e-12
    assert result.mean - 1e-12 <= result.high <= bounds[1]


@pytest.mark.parametrize("value", [1.6, 99.6])  # np.mean of three of them is another number
def test_interval_of_equal_scores_has_no_width(value: float) -> None:
    for bounds in ((-inf, inf), (0, inf), (0, 100)):
        result = estimate([value] * 3, bounds)
        assert (result.mean, result.low, result.high) == (value, value, value)


@pytest.mark.parametrize("values", [[0.1, nan], [nan, 0.1], [nan, nan], [nan], [0.1, inf], [inf, -inf]])
@pytest.mark.parametrize("bounds", [(-inf, inf), (0, inf), (0, 1)])
def test_estimate_of_values_that_are_not_finite_is_nan(
    values: list[float], bounds: tuple[float, float]
) -> None:
    result = estimate(values, bounds)
    assert all(isnan(number) for number in (result.mean, result.low, result.high))
    assert isnan(t_test_p_value([0.1, *values]))


@pytest.mark.parametrize("p", [nan, -0.1, 1.1])
def test_holm_rejects_what_is_no_p_value(p: float) -> None:
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        holm([0.01, p])


def test_single_score_has_no_interval() -> None:
    result = estimate([3.5])
    assert (result.mean, result.low, result.high, result.count) == (3.5, None, None, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_of_shares_near_one_have_coverage(seeds: int) -> None:
    draw = np.random.default_rng(seeds)
    studies = [estimate(list(draw.beta(9, 1, seeds)), (0, 1)) for _ in range(4000)]
    covered = np.mean([result.low <= 0.9 <= result.high for result in studies])
    assert covered == pytest.approx(0.95, abs=0.02)  # without the transformation 0.90


def test_t_test_equals_that_of_scipy() -> None:
    differences = [0.3, -0.1, 0.8, 0.5]
    assert t_test_p_value(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)


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
