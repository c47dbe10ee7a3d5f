"""Numerical functions and limits that several mechanisms share."""

import math

from torch import Tensor

SMALLEST_WEIGHT = 1e-30
"""Smallest weight that counts as more than zero: its logarithm and its inverse are finite in fp32."""


def at_least_float32(values: Tensor) -> Tensor:
    """Convert a tensor of any shape to fp32, unless it is fp64: large scores and sums need that precision."""
    return values.double() if values.dtype.itemsize == 8 else values.float()


def inverse_softplus(value: float) -> float:
    """Return the x for which softplus(x) = log(1 + exp(x)) equals `value` > 0."""
    return value + math.log(-math.expm1(-value))
