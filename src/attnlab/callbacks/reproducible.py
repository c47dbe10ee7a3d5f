"""Random numbers that follow from where training stands, not from how it got there."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer


class Reproducible(Callback):
    """Seeds every generator from (seed, batches trained on, rank) before each batch.

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
        place = (self.seed, trainer.fit_loop.epoch_loop.total_batch_idx, trainer.global_rank)
        state = int(np.random.SeedSequence(place).generate_state(1)[0])
        random.seed(state)
        np.random.seed(state)  # noqa: NPY002  libraries that draw from the global generator are meant
        torch.manual_seed(state)
