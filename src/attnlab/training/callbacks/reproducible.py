"""Random numbers that follow from where training stands, not from how it got there."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer


class Reproducible(Callback):
    """Seeds every generator from (seed, batches trained on, rank) before each batch and each evaluation.

    So a run that was stopped and goes on draws the dropout and the teacher forcing it would have drawn.
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
        """Seed."""
        self._seed(trainer, trainer.fit_loop.epoch_loop.total_batch_idx)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed: the best checkpoint may be scored by a process that never trained."""
        self._seed(trainer, 0)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The same."""
        self._seed(trainer, 0)

    def _seed(self, trainer: Trainer, batches: int) -> None:
        place = (self.seed, batches, trainer.global_rank)
        state = int(np.random.SeedSequence(place).generate_state(1)[0])
        random.seed(state)
        np.random.seed(state)  # noqa: NPY002  libraries that draw from the global generator are meant
        # torch.manual_seed would ask, at every step, for each kind of device that there could be.
        torch.default_generator.manual_seed(state)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(state)
