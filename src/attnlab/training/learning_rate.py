"""Learning-rate schedules that torch does not have."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


@dataclass(frozen=True)
class Halving:
    """Factor of the learning rate: 1 for `after` epochs, then halved immediately and every `every` epochs.

    Epochs may be fractions.
    """

    steps_per_epoch: int
    after: float
    every: float

    def __call__(self, step: int) -> float:
        """Return the factor at an optimizer step."""
        past = step / self.steps_per_epoch - self.after
        return 1.0 if past < 0 else 0.5 ** (1 + math.floor(past / self.every))


class HalvingLR(LambdaLR):
    """Constant learning rate for `after` epochs, then halved every `every` epochs.

    Sutskever, Vinyals & Le 2014 (arXiv 1409.3215), section 3.4, use after = 5 and every = 0.5. Call `step`
    after every optimizer step.
    """

    def __init__(self, optimizer: Optimizer, *, steps_per_epoch: int, after: float, every: float) -> None:
        super().__init__(optimizer, Halving(steps_per_epoch, after, every))
