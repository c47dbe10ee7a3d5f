"""Averaged weights, in place of the last ones."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging


class WeightAveraging(EMAWeightAveraging):
    """Validates, saves and ends with a moving average of the weights: θ̄ ← d θ̄ + (1 - d) θ after each step.

    What averaging the last checkpoints does, without a choice of how many: about the last 1 / (1 - d) steps
    count. The settings are those of Lightning's `EMAWeightAveraging`. That one also acts when a checkpoint is
    validated or tested after training, and puts other weights in the place of the average it holds.
    """

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Where training goes on, go on from the weights that were averaged."""
        if trainer.state.fn == "fit":
            super().on_load_checkpoint(trainer, pl_module, checkpoint)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """While training, put the average in place."""
        if trainer.state.fn == "fit":
            super().on_validation_epoch_start(trainer, pl_module)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """While training, take it away again."""
        if trainer.state.fn == "fit":
            super().on_validation_epoch_end(trainer, pl_module)
