"""Progress of a training, on the terminal, in the log and in the loggers."""

import logging
import time
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from rich import get_console

from attnlab.metrics.registry import metric
from attnlab.training.module import Seq2SeqModule
from attnlab.types import PAD, Batch

log = logging.getLogger(__name__)

MIN_COLUMNS = 80  # Width of a terminal in which the time and the speed fit next to the loss


class EpochLog(Callback):
    """Logs `epoch 3/30 · train/loss 0.41 · val/loss 0.38 · val/exact_match 83.1 %` after each epoch."""

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


class Throughput(Callback):
    """Logs `throughput/tokens_per_second` and `throughput/steps_per_second` of the whole run.

    Tokens are those of sources and targets of all processes, without padding; steps are optimizer steps.
    Waiting for data is counted; validation and the time between epochs are not.
    """

    def __init__(self) -> None:
        self.tokens: torch.Tensor | int = 0
        self.first_step = 0
        self.seconds = self.since = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.first_step = trainer.global_step

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restart the clock: validations and the time between epochs are not counted."""
        self.since = time.perf_counter()

    on_validation_end = on_train_epoch_start

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Count the batch, and log after every `log_every_n_steps` steps."""
        now = time.perf_counter()
        self.seconds += now - self.since
        self.since = now
        self.tokens = self.tokens + batch.source_lengths.sum() + (batch.labels != PAD).sum()
        steps = trainer.global_step - self.first_step
        if steps < trainer.log_every_n_steps:  # type: ignore[attr-defined]
            return
        assert isinstance(pl_module, Seq2SeqModule)
        tokens = torch.as_tensor(self.tokens, dtype=torch.float64)
        if pl_module.shards is None:  # with shards, every process has the whole batch
            tokens = trainer.strategy.reduce(tokens, reduce_op="sum")
        values = {
            "throughput/tokens_per_second": float(tokens) / self.seconds,
            "throughput/steps_per_second": steps / self.seconds,
        }
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step - 1)
        self.tokens, self.first_step, self.seconds = 0, trainer.global_step, 0.0
