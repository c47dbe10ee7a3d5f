"""Exponential moving average of the weights."""

from typing import Any

import lightning.pytorch.callbacks
from lightning import LightningModule, Trainer
from torch import Tensor
from torch.optim.swa_utils import get_ema_avg_fn

from attnlab.settings import Count, Fraction


class WeightAveraging(lightning.pytorch.callbacks.WeightAveraging):
    """Uses averaged weights in validation, checkpoints and at the end: θ̄ ← d θ̄ + (1 - d) θ after each step.

    The average covers about the last 1 / (1 - d) steps. Before its first epoch it equals the current weights.
    Lightning's `EMAWeightAveraging` averages from the first step, whatever its first epoch. It also acts when
    a checkpoint is evaluated after training, and would then replace the averaged weights that the checkpoint
    holds.

    Args:
        decay: d of the moving average; 0.99 averages about 100 steps.
        update_starting_at_epoch: first epoch of the average, from 0.
    """

    def __init__(self, *, decay: Fraction = 0.99, update_starting_at_epoch: Count = 0) -> None:
        self.average = get_ema_avg_fn(decay)  # type: ignore[no-untyped-call]
        self.first_epoch = update_starting_at_epoch
        self.started = False
        super().__init__(avg_fn=self._update)

    def _update(self, average: Tensor, current: Tensor, count: Tensor | int) -> Tensor:
        updated: Tensor = self.average(average, current, count) if self.started else current
        return updated

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.started = trainer.current_epoch >= self.first_epoch
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the weights that were averaged, if training is resumed."""
        if trainer.state.fn == "fit":
            super().on_load_checkpoint(trainer, pl_module, checkpoint)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            super().on_validation_epoch_start(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":
            super().on_validation_epoch_end(trainer, pl_module)
