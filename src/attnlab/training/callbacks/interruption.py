"""Stop in good order when asked to by a signal."""

from __future__ import annotations

import signal
from typing import Any

from lightning import Callback, LightningModule, Trainer

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interruption(Callback):
    """Notes SIGTERM and SIGINT while training, for `LastCheckpoint` to save and leave between two batches.

    Lightning's own handling ends without a checkpoint, and saving from inside a handler deadlocks under DDP.
    Outside training there is nothing to save, and the handlers that were there before hold.
    """

    def __init__(self) -> None:
        self.asked = False
        self.before = {number: signal.getsignal(number) for number in SIGNALS}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take over the two signals, after Lightning has."""
        for number in SIGNALS:
            signal.signal(number, self._ask)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give them back."""
        self._give_back()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give them back, where Lightning has taken them to score."""
        if trainer.state.fn != "fit":
            self._give_back()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The same."""
        self._give_back()

    def _give_back(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, *_: Any) -> None:
        self.asked = True
