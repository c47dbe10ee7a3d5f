"""Stop in good order when asked to by a signal."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer


class InterruptedRunError(Exception):
    """Training was asked to stop, and did so after saving."""


class Interruption(Callback):
    """At SIGTERM or SIGINT, finish the batch, save `last.ckpt` on all ranks together, and leave.

    Lightning's own handling ends without a checkpoint, and saving from inside a handler deadlocks under DDP.
    So the handler only raises a flag, and the ranks agree on it between two batches.
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.asked = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over the two signals, after Lightning has."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Stop if any rank was asked to."""
        if trainer.strategy.reduce_boolean_decision(self.asked, all=False):
            trainer.save_checkpoint(self.checkpoint)
            raise InterruptedRunError

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """What follows training needs no saving: let the signals end it."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _ask(self, *_: Any) -> None:
        self.asked = True
