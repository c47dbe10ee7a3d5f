"""How far training is, for those who watch a terminal."""

from __future__ import annotations

from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from attnlab.training.module import Seq2SeqModule


class ProgressBar(RichProgressBar):
    """Lightning's, with the loss of every step and not only of those that are logged."""

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        """What is shown beside the bar."""
        assert isinstance(pl_module, Seq2SeqModule)
        shown = super().get_metrics(trainer, pl_module)
        if pl_module.last_loss is not None:
            shown["train/loss"] = float(pl_module.last_loss)
        return shown
