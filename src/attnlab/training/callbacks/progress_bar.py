"""Progress bar for terminals."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from attnlab.training.module import Seq2SeqModule


class ProgressBar(RichProgressBar):
    """Lightning's progress bar, with the loss of every step instead of only the logged ones."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """Return the values that are shown next to the bar."""
        assert isinstance(pl_module, Seq2SeqModule)
        metrics = super().get_metrics(trainer, pl_module)
        if pl_module.last_loss is not None:
            metrics["train/loss"] = float(pl_module.last_loss)
        return metrics
