"""A line an epoch, for the log and for those who watch no progress bar."""

from __future__ import annotations

import logging

from lightning import Callback, LightningModule, Trainer

log = logging.getLogger(__name__)


class EpochLog(Callback):
    """Says `epoch 3/30 · train/loss 0.41 · val/loss 0.38 · …` after each epoch."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say it."""
        numbers = " · ".join(
            f"{name.removesuffix('_epoch')} {float(value):.4g}"
            for name, value in trainer.callback_metrics.items()
            if name == "train/loss_epoch" or name.startswith("val/")
        )
        if trainer.is_global_zero:
            log.info("epoch %d/%s · %s", trainer.current_epoch + 1, trainer.max_epochs, numbers)
