"""Progress bar for terminals."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from rich import get_console

from attnlab.training.callbacks.epoch_log import epoch_number
from attnlab.training.module import Seq2SeqModule

MIN_COLUMNS = 80
"""Width of a terminal in which the time and the speed fit next to the loss."""


class ProgressBar(RichProgressBar):
    """Lightning's progress bar, with epochs from 1, and the loss of every step."""

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        """Return the columns: description, bar and batches, and in a wide terminal the time and the speed."""
        columns = super().configure_columns(trainer)
        return columns if get_console().width >= MIN_COLUMNS else columns[:3]

    def _get_train_description(self, current_epoch: int) -> str:
        """Return the text before the bar; Lightning counts epochs from 0 here."""
        return epoch_number(self.trainer)

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        assert isinstance(pl_module, Seq2SeqModule)
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)  # the hash of the run, which its directory shows
        if pl_module.last_loss is not None:
            metrics["train/loss"] = float(pl_module.last_loss)
        return metrics
