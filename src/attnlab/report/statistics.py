"""Confidence intervals of means over seeds, and the correction of p-values.

Values that are not finite give NaN, never an interval without width; reports leave such scores out before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log, nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import special  # its import takes a third of the time of scipy.stats

CONFIDENCE = 0.95

Bounds = tuple[float, float]  # Smallest and largest possible value; infinite without a limit

Values = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % confidence interval, which is None for a single value."""

    mean: float
    low: float | None
    high: float | None
    count: int
    total: int | None = None  # number of runs, if some of them have no value

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the interval; None if it has no width."""
        if self.low is None or self.high is None or self.low == self.high:
            return None
        return self.low, self.high


def estimate(values: Sequence[float], bounds: Bounds = (-inf, inf)) -> Estimate:
    """Return the mean of at least one value and its interval by Student's t, inside the bounds.

    Without bounds the interval is x̄ ± h with h = t₀.₉₇₅,ₙ₋₁ · s / √n. With bounds it is computed on a
    transformed scale g, as g⁻¹(g(x̄) ± g'(x̄) · h): the logit of (x - low) / (high - low) for two bounds, the
    logarithm of x - low for a lower one. It contains the mean, and is not symmetric around it.
    """
    n, (mean, standard_error) = len(values), _mean_and_error(values)
    if not isfinite(mean):
        return Estimate(nan, nan, nan, n)
    if n == 1:
        return Estimate(mean, None, None, 1)
    if min(values) == max(values):  # their computed mean can differ from them
        return Estimate(values[0], values[0], values[0], n)
    half_width = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * standard_error
    low, high = bounds
    if not isfinite(low):
        return Estimate(mean, mean - half_width, mean + half_width, n)
    above, below = mean - low, high - mean
    if above <= 0 or below <= 0:
        return Estimate(mean, mean, mean, n)
    if not isfinite(high):
        factor = exp(min(half_width / above, 700))  # exp overflows above 709
        return Estimate(mean, low + above / factor, low + above * factor, n)
    centre, spread = log(above / below), half_width * (high - low) / (above * below)
    ends = (low + (high - low) / (1 + exp(min(-x, 700))) for x in (centre - spread, centre + spread))
    return Estimate(mean, next(ends), next(ends), n)


def t_test_p_value(differences: Values) -> float:
    """Return the two-sided p-value of Student's paired t test of at least two differences.

    Equal differences have p = 0, and p = 1 if they are 0.
    """
    mean, standard_error = _mean_and_error(differences)
    if standard_error == 0:
        return float(mean == 0)
    return float(2 * special.stdtr(np.size(differences) - 1, -abs(mean / standard_error)))


def _mean_and_error(values: Values) -> tuple[float, float]:
    """Return the mean and its standard error s / √n; NaN for values that are not finite."""
    if not np.isfinite(values).all():
        return nan, nan
    n = np.size(values)
    return float(np.mean(values)), float(np.std(values, ddof=1) / sqrt(n)) if n > 1 else nan


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's step-down method (1979).

    With the m values sorted in ascending order and k from 0, the k-th becomes the maximum over j ≤ k of
    (m - j) · p_j, at most 1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"p-values must be in [0, 1], got {list(p_values)}")
    order = np.argsort(p_values)
    steps = np.asarray(p_values)[order] * (len(order) - np.arange(len(order)))
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return [float(p) for p in corrected]
