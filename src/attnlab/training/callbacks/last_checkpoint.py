"""Keep a place to go on from, to the same bits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from attnlab.errors import InterruptedRunError
from attnlab.runs.directory import Run
from attnlab.training.callbacks.interruption import Interruption
from attnlab.training.loggers import MetricsFile


class LastCheckpoint(Callback):
    """Saves `last.ckpt` between two batches: after each epoch, every so many minutes, and when asked to stop.

    Between two batches nothing is half done: the validation, the scheduler's step and the lines of
    metrics.csv that the last one led to are behind, and no gradient waits for others to be added. A run that
    goes on from there equals one that never stopped. From the moments at which Lightning saves it would not:
    an epoch's end comes before a plateau's scheduler has seen it and before its loss is logged, and a batch's
    end before its validation.

    To know what is behind, it has to come before all callbacks that log. `previous.ckpt` is the one before.

    Args:
        run: whose checkpoints they are.
        metrics: the file whose length is kept, to cut it to when the run goes on.
        interruption: knows whether the run was asked to stop.
        every_minutes: save inside epochs after so much time; None for never.
    """

    def __init__(
        self, run: Run, metrics: MetricsFile, interruption: Interruption, *, every_minutes: float | None
    ) -> None:
        self.run = run
        self.metrics = metrics
        self.interruption = interruption
        self.every_minutes = every_minutes
        self.saved_batches = 0
        self.saved_when = time.monotonic()
        self.since = time.monotonic()
        self.restored_metrics: dict[str, Tensor] = {}

    @property
    def seconds(self) -> float:
        """The time this run has taken, without what was lost when it was killed."""
        return time.monotonic() - self.since

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add what Lightning leaves out."""
        checkpoint["resumption"] = {
            "metrics_length": self.metrics.flush(),
            "seconds": self.seconds,
            "should_stop": trainer.should_stop,
            "callback_metrics": {name: value.cpu() for name, value in trainer.callback_metrics.items()},
        }

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take it back, where training goes on."""
        if trainer.state.fn != "fit":
            return
        state = checkpoint["resumption"]
        self.since = time.monotonic() - state["seconds"]
        trainer.should_stop = state["should_stop"]
        self.restored_metrics = state["callback_metrics"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on."""
        trainer.callback_metrics.update(self.restored_metrics)  # a plateau may wait for the last validation
        self.saved_batches = trainer.fit_loop.epoch_loop.batch_progress.total.ready
        self.saved_when = time.monotonic()
        epochs = trainer.fit_loop.epoch_progress.current
        if epochs.ready == epochs.completed:
            # An epoch begins: none of its batches is to be found again, as Lightning thinks with max_steps.
            trainer.fit_loop.epoch_loop.restarting = False

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save what the epoch before has come to."""
        if trainer.fit_loop.epoch_loop.batch_progress.total.ready > self.saved_batches:
            with _before_this_epoch(trainer):
                self._save(trainer)
        self._leave_if_asked(trainer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Save inside an epoch, if it is time or any rank was asked to stop."""
        if batch_idx == 0 or batch_idx % trainer.accumulate_grad_batches != 0:
            return
        if trainer.strategy.reduce_boolean_decision(
            self.interruption.asked or self._is_time(trainer), all=False
        ):
            with _before_this_batch(trainer):
                self._save(trainer)
            self._leave_if_asked(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let a plateau's scheduler see this epoch: Lightning would spare it one that was resumed inside."""
        trainer.fit_loop._restarting = False

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end: a run killed from here on has only to be scored."""
        self._save(trainer)
        self._leave_if_asked(trainer)

    def _is_time(self, trainer: Trainer) -> bool:
        """Whether it is time to save, by the clock of the leading rank."""
        if self.every_minutes is None or not trainer.is_global_zero:
            return False
        return time.monotonic() - self.saved_when >= 60 * self.every_minutes

    def _save(self, trainer: Trainer) -> None:
        if trainer.is_global_zero and self.run.last.is_file():
            self.run.last.replace(self.run.previous)
        trainer.save_checkpoint(self.run.last)
        self.saved_batches = trainer.fit_loop.epoch_loop.batch_progress.total.ready
        self.saved_when = time.monotonic()

    def _leave_if_asked(self, trainer: Trainer) -> None:
        if trainer.strategy.reduce_boolean_decision(self.interruption.asked, all=False):
            raise InterruptedRunError


@contextmanager
def _before_this_epoch(trainer: Trainer) -> Iterator[None]:
    """The loops' counters without the epoch that is about to start."""
    epochs = trainer.fit_loop.epoch_progress
    for count in (epochs.total, epochs.current):
        count.ready -= 1
    try:
        yield
    finally:
        for count in (epochs.total, epochs.current):
            count.ready += 1


@contextmanager
def _before_this_batch(trainer: Trainer) -> Iterator[None]:
    """The loops' counters without the batch that is about to start.

    They stand as in the last hook of the batch before, from where Lightning knows how to go on inside an
    epoch: with that batch to be counted as completed, and its validation, if it led to one, as done.
    """
    loop = trainer.fit_loop.epoch_loop
    batches = loop.batch_progress
    is_last_batch = batches.is_last_batch
    for count in (batches.total, batches.current):
        count.ready -= 1
        count.completed -= 1
    batches.is_last_batch = False
    loop._batches_that_stepped -= 1
    try:
        yield
    finally:
        for count in (batches.total, batches.current):
            count.ready += 1
            count.completed += 1
        batches.is_last_batch = is_last_batch
        loop._batches_that_stepped += 1
