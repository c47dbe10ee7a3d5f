"""Exponential moving average of the weights."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging


class WeightAveraging(EMAWeightAveraging):
    """Uses averaged weights in validation, checkpoints and at the end: θ̄ ← d θ̄ + (1 - d) θ after each step.

    The average covers about the last 1 / (1 - d) steps. The arguments are those of Lightning's
    `EMAWeightAveraging`, which also acts when a checkpoint is evaluated after training, and would then
    replace the averaged weights that the checkpoint holds.
    """

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Restore the weights that were averaged, if training is resumed."""
        if trainer.state.fn == "fit":
            super().on_load_checkpoint(trainer, pl_module, checkpoint)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Switch to the averaged weights during training."""
        if trainer.state.fn == "fit":
            super().on_validation_epoch_start(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Switch back to the current weights during training."""
        if trainer.state.fn == "fit":
            super().on_validation_epoch_end(trainer, pl_module)
