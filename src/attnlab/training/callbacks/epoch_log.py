"""One log line per epoch, for log files and terminals without a progress bar."""

from __future__ import annotations

import logging

from lightning import Callback, LightningModule, Trainer

log = logging.getLogger(__name__)


class EpochLog(Callback):
    """Logs `epoch 3/30 · train/loss 0.41 · val/loss 0.38 · …` after each epoch."""

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        numbers = " · ".join(
            f"{name.removesuffix('_epoch')} {float(value):.4g}"
            for name, value in trainer.callback_metrics.items()
            if name == "train/loss_epoch" or name.startswith("val/")
        )
        if trainer.is_global_zero:
            log.info("%s · %s", epoch_number(trainer), numbers)


def epoch_number(trainer: Trainer) -> str:
    """Return the current epoch, counted from 1, and the number of epochs: "epoch 3/30"."""
    total = trainer.max_epochs
    number = f"epoch {trainer.current_epoch + 1}"
    return number if total is None or total < 0 else f"{number}/{total}"
