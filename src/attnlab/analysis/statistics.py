"""Confidence intervals of means over seeds, and the correction of p-values for multiple tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % confidence interval, mean ± half_width.

    Attributes:
        mean: mean of the values.
        half_width: None for a single value, whose variance is unknown.
        count: number of values.
    """

    mean: float
    half_width: float | None
    count: int

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the interval."""
        return None if self.half_width is None else self.mean + self.half_width


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of at least one value and its interval by Student's t: x̄ ± t₀.₉₇₅,ₙ₋₁ · s / √n."""
    n = len(values)
    if n == 1:
        return Estimate(values[0], None, 1)
    half_width = stats.t.ppf((1 + CONFIDENCE) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n)
    return Estimate(float(np.mean(values)), float(half_width), n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values by Holm's step-down method (1979).

    With the m values sorted in ascending order and k from 0, the k-th becomes the maximum over j ≤ k of
    (m - j) · p_j, at most 1.
    """
    order = np.argsort(p_values)
    steps = np.asarray(p_values)[order] * (len(order) - np.arange(len(order)))
    corrected = np.empty(len(order))
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return [float(p) for p in corrected]
