"""Random seeds that depend on the training step only."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer


class Reproducible(Callback):
    """Seeds all generators from (seed, trained batches, rank) before each batch and each evaluation.

    A resumed run therefore draws the same dropout masks and teacher-forcing decisions as an uninterrupted
    one.

    Args:
        seed: seed of the run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Seed for this batch."""
        self._seed(trainer, trainer.fit_loop.epoch_loop.total_batch_idx)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed independently of the step: a process that never trained may evaluate the best checkpoint."""
        self._seed(trainer, 0)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed independently of the step."""
        self._seed(trainer, 0)

    def _seed(self, trainer: Trainer, batches: int) -> None:
        entropy = (self.seed, batches, trainer.global_rank)
        state = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        random.seed(state)
        np.random.seed(state)  # noqa: NPY002  for libraries that draw from the global generator
        # torch.manual_seed would also look for every other kind of device, at every step
        torch.default_generator.manual_seed(state)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(state)
