"""Progress of a training, on the terminal, in the log and in the loggers."""

import logging
import time
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from attnlab.metrics.registry import metric
from attnlab.training.module import Seq2SeqModule
from attnlab.types import PAD, Batch

log = logging.getLogger(__name__)


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
            total = "" if trainer.max_epochs in (None, -1) else f"/{trainer.max_epochs}"
            log.info("epoch %d%s · %s", trainer.current_epoch + 1, total, numbers)


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
        """Restart the clock: the time between epochs is not counted."""
        self.since = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restart the clock: the validation is not counted."""
        self.since = time.perf_counter()

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
