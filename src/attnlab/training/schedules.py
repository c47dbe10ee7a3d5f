"""What changes while a model trains: how much it is helped, and how fast it learns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

Grain = Literal["step", "token"]


class TeacherForcing(Protocol):
    """The chance ε that the decoder reads the reference token and not its own guess."""

    per: Grain

    def ratio(self, step: int) -> float:
        """ε at a training step, in 0..1."""
        ...


@dataclass(frozen=True)
class Constant:
    """ε = value."""

    value: float = 1.0
    per: Grain = "step"

    def __post_init__(self) -> None:
        _check_ratio("value", self.value)

    def ratio(self, step: int) -> float:
        """ε at a training step, in 0..1."""
        return self.value


@dataclass(frozen=True)
class Linear:
    """ε falls from `start` to `end` in `steps` training steps (Bengio et al. 2015, arXiv 1506.03099)."""

    start: float = 1.0
    end: float = 0.0
    steps: int = 10_000
    per: Grain = "step"

    def __post_init__(self) -> None:
        _check_ratio("start", self.start)
        _check_ratio("end", self.end)

    def ratio(self, step: int) -> float:
        """ε at a training step, in 0..1."""
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class InverseSigmoid:
    """ε = k / (k + exp(step / k)) (Bengio et al. 2015, arXiv 1506.03099)."""

    k: float = 1_000.0
    per: Grain = "step"

    def ratio(self, step: int) -> float:
        """ε at a training step, in 0..1."""
        return self.k / (self.k + math.exp(min(step / self.k, 700.0)))


def _check_ratio(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"teacher_forcing.{name}={value} is no chance: give a number from 0 to 1")


def draw_forced(schedule: TeacherForcing, step: int, inputs: Tensor) -> Tensor | None:
    """Which of the inputs [B, T] are read as the reference: [B, T] bool, or None for all of them.

    `per="step"` draws once a target position for the whole batch, `per="token"` for each token.
    """
    ratio = schedule.ratio(step)
    if ratio >= 1.0:
        return None
    rows = 1 if schedule.per == "step" else inputs.size(0)
    return (torch.rand(rows, inputs.size(1), device=inputs.device) < ratio).expand_as(inputs)


@dataclass(frozen=True)
class Halving:
    """1 for `after` epochs, then halved at once and every `every` epochs; fractions of epochs count."""

    steps_per_epoch: int
    after: float
    every: float

    def __call__(self, step: int) -> float:
        """The factor at an optimizer step."""
        past = step / self.steps_per_epoch - self.after
        return 1.0 if past < 0 else 0.5 ** (1 + math.floor(past / self.every))


class HalvingLR(LambdaLR):
    """A learning rate constant for `after` epochs, then halved every `every` epochs.

    Sutskever, Vinyals & Le 2014 (arXiv 1409.3215), section 3.4, have after = 5 and every = 0.5. To be stepped
    after every optimizer step.
    """

    def __init__(self, optimizer: Optimizer, *, steps_per_epoch: int, after: float, every: float) -> None:
        super().__init__(optimizer, Halving(steps_per_epoch, after, every))
