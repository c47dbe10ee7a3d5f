"""Teacher-forcing schedules: the probability ε that the decoder reads the reference token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

Granularity = Literal["step", "token"]
"""Draw once per target position for the whole batch ("step"), or for each token ("token")."""


class TeacherForcing(Protocol):
    """Probability ε that the decoder reads the reference token instead of its own prediction."""

    per: Granularity

    def ratio(self, step: int) -> float:
        """Return ε, 0 to 1, at a training step."""
        ...


@dataclass(frozen=True)
class Constant:
    """Constant probability: ε = value."""

    value: float = 1.0
    per: Granularity = "step"

    def __post_init__(self) -> None:
        _check_probability("value", self.value)

    def ratio(self, step: int) -> float:
        """Return ε, 0 to 1, at a training step."""
        return self.value


@dataclass(frozen=True)
class Linear:
    """Linear decay of ε from `start` to `end` in `steps` steps (Bengio et al. 2015, arXiv 1506.03099)."""

    start: float = 1.0
    end: float = 0.0
    steps: int = 10_000
    per: Granularity = "step"

    def __post_init__(self) -> None:
        _check_probability("start", self.start)
        _check_probability("end", self.end)

    def ratio(self, step: int) -> float:
        """Return ε, 0 to 1, at a training step."""
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class InverseSigmoid:
    """Inverse sigmoid decay: ε = k / (k + exp(step / k)) (Bengio et al. 2015, arXiv 1506.03099)."""

    k: float = 1_000.0
    per: Granularity = "step"

    def ratio(self, step: int) -> float:
        """Return ε, 0 to 1, at a training step."""
        return self.k / (self.k + math.exp(min(step / self.k, 700.0)))  # exp(710) overflows


def sample_forced(schedule: TeacherForcing, step: int, inputs: Tensor) -> Tensor | None:
    """Draw which input tokens [B, T] are read from the reference: [B, T] bool, or None for all of them."""
    ratio = schedule.ratio(step)
    if ratio >= 1.0:
        return None
    rows = 1 if schedule.per == "step" else inputs.size(0)
    return (torch.rand(rows, inputs.size(1), device=inputs.device) < ratio).expand_as(inputs)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"teacher_forcing.{name}={value} must be a probability in [0, 1]")
