"""Progress of a training, on the terminal, in the log and in the loggers."""

import logging
import math
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from rich import get_console
from rich.console import Console
from rich.table import Column, Table

from attnlab.metrics.registry import metric
from attnlab.training.module import Seq2SeqModule
from attnlab.types import PAD, Batch

log = logging.getLogger(__name__)

MIN_COLUMNS = 80
"""Width of a terminal in which the time and the speed fit next to the loss."""

POINTS = 200
"""Smallest number of logged learning rates of a training, if it has as many steps."""

SECONDS = 5.0
"""Training time after which the cores are judged."""

BUSY = 0.25
"""Share of the time that a thread waits for a core; on idle cores it is about 0."""


class EpochLog(Callback):
    """Logs `epoch 3/30 · train/loss 0.41 · val/loss 0.38 · val/exact_match 83.1 %` after each epoch.

    Scores are those of a validation in this epoch, if it had one; the monitored one is among them.
    """

    def __init__(self) -> None:
        self.validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.validated = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        validated = ("val/loss", "val/exact_match", getattr(trainer.checkpoint_callback, "monitor", None))
        numbers = " · ".join(
            f"{name.removesuffix('_epoch')} {metric(name).with_unit(float(value))}"
            for name, value in trainer.callback_metrics.items()
            if name == "train/loss_epoch" or (self.validated and name in validated)
        )
        self.validated = False
        if trainer.is_global_zero:
            log.info("%s · %s", epoch_number(trainer), numbers)


def epoch_number(trainer: Trainer) -> str:
    """Return the current epoch, counted from 1, and the number of epochs: "epoch 3/30"."""
    total = trainer.max_epochs
    number = f"epoch {trainer.current_epoch + 1}"
    return number if total is None or total < 0 else f"{number}/{total}"


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


class NetworkSummary(Callback):
    """Prints each part of the network with its class and its number of parameters."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        if not trainer.is_global_zero:
            return
        table = Table(Column("part", overflow="fold"), Column("class", overflow="fold"))
        table.add_column("parameters", justify="right")
        for name, part in pl_module.network.named_children():
            count = sum(parameter.numel() for parameter in part.parameters())
            table.add_row(name, type(part).__name__, f"{count:,}")
        Console(stderr=True, soft_wrap=True).print(table)


class LearningRate(Callback):
    """Logs the learning rate of each optimizer as `lr-<class>` at regular steps.

    Lightning's `LearningRateMonitor` logs every `log_every_n_steps` steps only, which leaves a few points of
    the schedule of a short training.
    """

    def __init__(self) -> None:
        self.every = 1

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Choose the interval from the number of steps, so that a resumed run logs at the same steps."""
        self.every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        total = trainer.estimated_stepping_batches
        if math.isfinite(total):
            self.every = max(1, min(self.every, int(total) // POINTS))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx % trainer.accumulate_grad_batches or trainer.global_step % self.every:
            return
        rates = {
            f"lr-{type(optimizer).__name__}": float(optimizer.param_groups[0]["lr"])
            for optimizer in trainer.optimizers
        }
        for logger in trainer.loggers:
            logger.log_metrics(rates, step=trainer.global_step)


class Throughput(Callback):
    """Logs `throughput/tokens_per_second` and `throughput/steps_per_second` of the whole run.

    Tokens are those of sources and targets of all processes, without padding; steps are optimizer steps. A
    batch is timed from the end of the previous one, which includes waiting for data. Validation and the time
    between epochs are not counted.
    """

    def __init__(self) -> None:
        self.tokens: torch.Tensor | int = 0
        self.steps = Fraction(0)
        self.seconds = 0.0
        self.since: float | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Count the batch, and log after every `log_every_n_steps` timed steps."""
        now = time.perf_counter()
        if self.since is not None:
            self.seconds += now - self.since
            self.steps += Fraction(1, _batches_of_step(trainer, batch_idx))
            self.tokens = self.tokens + batch.source_lengths.sum() + (batch.labels != PAD).sum()
        self.since = now
        if self.steps >= trainer.log_every_n_steps:  # type: ignore[attr-defined]
            assert isinstance(pl_module, Seq2SeqModule)
            tokens = torch.as_tensor(self.tokens, dtype=torch.float64)
            if pl_module.shards is None:  # with shards, every process has the whole batch
                tokens = trainer.strategy.reduce(tokens, reduce_op="sum")
            values = {
                "throughput/tokens_per_second": float(tokens) / self.seconds,
                "throughput/steps_per_second": float(self.steps) / self.seconds,
            }
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step - 1)
            self.tokens, self.steps, self.seconds = 0, Fraction(0), 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restart the clock: the time between epochs is not counted."""
        self.since = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restart the clock: the validation is not counted."""
        self.since = None


def _batches_of_step(trainer: Trainer, batch_idx: int) -> int:
    """Return the number of batches of the optimizer step that a batch contributes to.

    The last step of an epoch has the batches that are left.
    """
    accumulated = trainer.accumulate_grad_batches
    left = int(trainer.num_training_batches) % accumulated
    return left if batch_idx >= trainer.num_training_batches - left else accumulated


class BusyCores(Callback):
    """Warns once, in the first seconds of training, if threads of this process have to wait for a core.

    Threads that share an operation wait for the slowest of them, so that a step with two threads on busy
    cores takes many times as long as with one.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._since: float | None = time.perf_counter()
        self._before = waiting_times()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._since is None or (seconds := time.perf_counter() - self._since) < SECONDS:
            return
        self._since = None
        waited = {thread: now - self._before.get(thread, 0.0) for thread, now in waiting_times().items()}
        if (share := max(waited.values(), default=0.0) / seconds) >= BUSY:
            threads = torch.get_num_threads()
            log.warning(
                "other programs use the cores: threads of this run wait %.0f %% of the time for one%s",
                100 * min(share, 1.0),
                "" if threads == 1 else f"; set OMP_NUM_THREADS=1 (now {threads} threads) to lose less",
            )


def waiting_times() -> dict[str, float]:
    """Return the seconds that each thread of this process was ready to run and had no core.

    Empty on systems that do not record them in `/proc/*/schedstat`, as Linux does.
    """
    waited = {}
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            _, nanoseconds, _ = task.read_text(encoding="ascii").split()
        except OSError:  # the thread has ended
            continue
        waited[task.parent.name] = int(nanoseconds) / 1e9
    return waited
