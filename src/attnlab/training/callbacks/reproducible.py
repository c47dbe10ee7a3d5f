"""Random seeds that depend on the training step only."""

from __future__ import annotations

from typing import Any

from lightning import Callback, LightningModule, Trainer

from attnlab.training.seeding import seed_generators


class Reproducible(Callback):
    """Seeds all generators from (seed, trained batches, rank) before each batch and each evaluation.

    A resumed run therefore draws the same dropout masks and teacher-forcing decisions as an uninterrupted
    one. With virtual shards, `attnlab.training.shards` seeds again for each of them.

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
        self._seed(trainer, trainer.fit_loop.epoch_loop.total_batch_idx)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed independently of the step: a process that never trained may evaluate the best checkpoint."""
        self._seed(trainer, 0)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._seed(trainer, 0)

    def _seed(self, trainer: Trainer, batches: int) -> None:
        seed_generators(self.seed, batches, trainer.global_rank)
