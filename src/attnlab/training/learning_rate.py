"""Learning-rate schedules that torch does not have, or not for every number of steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LambdaLR

from attnlab.settings import NotNegative, Positive, Probability


@dataclass(frozen=True)
class Halving:
    """Factor of the learning rate: 1 for `after` epochs, then halved immediately and every `every` epochs.

    Epochs may be fractions.
    """

    steps_per_epoch: int
    after: float
    every: float

    def __call__(self, step: int) -> float:
        past = step / self.steps_per_epoch - self.after
        return 1.0 if past < 0 else 0.5 ** (1 + math.floor(past / self.every))


class HalvingLR(LambdaLR):
    """Constant learning rate for `after` epochs, then halved every `every` epochs.

    Sutskever, Vinyals & Le 2014 (arXiv 1409.3215), section 3.4, use after = 5 and every = 0.5. Call `step`
    after every optimizer step.

    Args:
        optimizer: its learning rates are multiplied.
        steps_per_epoch: optimizer steps of an epoch.
        after: epochs before the first halving; fractions are allowed.
        every: epochs between two halvings; fractions are allowed.
    """

    def __init__(
        self, optimizer: Optimizer, *, steps_per_epoch: int, after: NotNegative, every: Positive
    ) -> None:
        super().__init__(optimizer, Halving(steps_per_epoch, after, every))


class OneCycleLR(lr_scheduler.OneCycleLR):
    """One-cycle schedule of torch, also for a warm-up of exactly one step, where torch's divides by 0.

    Smith & Topin 2019 (arXiv 1708.07120). Call `step` after every optimizer step.

    Args:
        optimizer: its learning rates are replaced.
        max_lr: highest learning rate.
        total_steps: optimizer steps of the training.
        pct_start: share of the steps spent warming up.
        anneal_strategy, cycle_momentum, base_momentum, max_momentum: as in torch.
        div_factor, final_div_factor, three_phase: as in torch.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        max_lr: Positive,
        total_steps: int,
        pct_start: Probability = 0.1,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = False,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
    ) -> None:
        super().__init__(
            optimizer,
            max_lr=max_lr,
            total_steps=total_steps,
            pct_start=math.nextafter(pct_start, 1) if pct_start * total_steps == 1 else pct_start,
            anneal_strategy=anneal_strategy,
            cycle_momentum=cycle_momentum,
            base_momentum=base_momentum,
            max_momentum=max_momentum,
            div_factor=div_factor,
            final_div_factor=final_div_factor,
            three_phase=three_phase,
        )
