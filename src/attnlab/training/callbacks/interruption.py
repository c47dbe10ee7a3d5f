"""Handling of stop signals during training."""

from __future__ import annotations

import signal
from typing import Any

from lightning import Callback, LightningModule, Trainer

from attnlab.errors import STOP_SIGNALS


class Interruption(Callback):
    """Records stop signals during training; `LastCheckpoint` then saves and stops between two batches.

    Lightning's own handlers stop without a checkpoint, and saving inside a signal handler deadlocks under
    DDP. Outside training there is nothing to save, and the previous handlers are active.

    Attributes:
        requested: whether a signal arrived.
    """

    def __init__(self) -> None:
        self.requested = False
        self.previous = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Install the handlers; Lightning has already installed its own."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._request)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the previous handlers if Lightning replaced them for an evaluation outside training."""
        if trainer.state.fn != "fit":
            self._restore()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore the previous handlers, which Lightning replaced."""
        self._restore()

    def _restore(self) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _request(self, *_: Any) -> None:
        self.requested = True
