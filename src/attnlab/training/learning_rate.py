"""Learning-rate schedules that torch does not have, or not for every number of steps."""

import math

from torch import Tensor
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from attnlab.settings import NotNegative, Positive, Probability


class HalvingLR(LRScheduler):
    """Constant learning rate for `after` epochs, then halved immediately and every `every` epochs.

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
        self.steps_per_epoch, self.after, self.every = steps_per_epoch, after, every
        super().__init__(optimizer)

    def get_lr(self) -> list[float | Tensor]:
        past = self.last_epoch / self.steps_per_epoch - self.after  # in epochs; torch counts calls of `step`
        factor = 1.0 if past < 0 else 0.5 ** (1 + math.floor(past / self.every))
        return [factor * rate for rate in self.base_lrs]


class OneCycleLR(lr_scheduler.OneCycleLR):
    """One-cycle schedule of torch, also for a warm-up of exactly one step, where torch's divides by 0.

    Smith & Topin 2019 (arXiv 1708.07120). Call `step` after every optimizer step. The momentum is constant.

    Args:
        optimizer: its learning rates are replaced.
        max_lr: highest learning rate.
        total_steps: optimizer steps of the training.
        pct_start: share of the steps spent warming up.
    """

    def __init__(
        self, optimizer: Optimizer, *, max_lr: Positive, total_steps: int, pct_start: Probability = 0.1
    ) -> None:
        warm_up = math.nextafter(pct_start, 1) if pct_start * total_steps == 1 else pct_start
        super().__init__(
            optimizer, max_lr=max_lr, total_steps=total_steps, pct_start=warm_up, cycle_momentum=False
        )
