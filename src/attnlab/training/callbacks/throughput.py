"""Training speed in tokens and steps per second."""

from __future__ import annotations

import time
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

from attnlab.training.module import Seq2SeqModule
from attnlab.types import PAD, Batch


class Throughput(Callback):
    """Logs `throughput/tokens_per_second` and `throughput/steps_per_second` of the whole run.

    Tokens are those of sources and targets of all processes, without padding; steps are optimizer steps. A
    batch is timed from the end of the previous one, which includes waiting for data. Validation and the time
    between epochs are not counted.
    """

    def __init__(self) -> None:
        self.tokens: torch.Tensor | int = 0
        self.batches = 0
        self.seconds = 0.0
        self.since: float | None = None

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        """Count the batch, and log after every `log_every_n_steps` timed steps."""
        now = time.perf_counter()
        if self.since is not None:
            self.seconds += now - self.since
            self.batches += 1
            self.tokens = self.tokens + batch.source_lengths.sum() + (batch.labels != PAD).sum()
        self.since = now
        steps = self.batches / trainer.accumulate_grad_batches
        if steps >= trainer.log_every_n_steps:  # type: ignore[attr-defined]
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
            self.tokens, self.batches, self.seconds = 0, 0, 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restart the clock: the time between epochs is not counted."""
        self.since = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restart the clock: the validation is not counted."""
        self.since = None
