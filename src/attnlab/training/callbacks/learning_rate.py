"""Learning rate over the training steps."""

from __future__ import annotations

import math
from typing import Any

from lightning import Callback, LightningModule, Trainer

POINTS = 200
"""Smallest number of logged learning rates of a training, if it has as many steps."""


class LearningRate(Callback):
    """Logs the learning rate of each optimizer as `lr-<class>` at regular steps.

    Lightning's `LearningRateMonitor` logs every `log_every_n_steps` steps only, which leaves a few points of
    the schedule of a short training.
    """

    def __init__(self) -> None:
        self.every = 1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Choose the interval from the number of steps, so that a resumed run logs at the same steps."""
        self.every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        total = trainer.estimated_stepping_batches
        if math.isfinite(total):
            self.every = max(1, min(self.every, int(total) // POINTS))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches or trainer.global_step % self.every:
            return
        rates = {
            f"lr-{type(optimizer).__name__}": float(optimizer.param_groups[0]["lr"])
            for optimizer in trainer.optimizers
        }
        for logger in trainer.loggers:
            logger.log_metrics(rates, step=trainer.global_step)
