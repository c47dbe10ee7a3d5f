"""Random seeds of each training step, and digests that show whether two trainings are equal."""

import hashlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor


class Reproducible(Callback):
    """Seeds all generators from (seed, trained batches, rank) before each batch and each evaluation.

    A resumed run therefore draws the same dropout masks and teacher-forcing decisions as an uninterrupted
    one. With virtual shards, `attnlab.training.shards` seeds again for each of them.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._seed(trainer, trainer.fit_loop.epoch_loop.total_batch_idx)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed independently of the step: a process that never trained may evaluate the best checkpoint."""
        self._seed(trainer, 0)

    on_test_start = on_validation_start

    def _seed(self, trainer: Trainer, batches: int) -> None:
        seed_generators(self.seed, batches, trainer.global_rank)


def seed_generators(*entropy: int) -> None:
    """Seed the generators of Python, numpy and torch from a few numbers."""
    state = int(np.random.SeedSequence(entropy).generate_state(1)[0])
    random.seed(state)
    np.random.seed(state)  # noqa: NPY002  for libraries that draw from the global generator
    # torch.manual_seed would also look for every other kind of device, at every step
    torch.default_generator.manual_seed(state)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(state)


class EpochDigests(Callback):
    """Chains SHA-256 digests of the weights and the optimizer's state after each epoch.

    Each digest includes the one before it. Two runs with equal last digests have been equal to the last bit
    in all epochs; otherwise the first unequal digest is that of the epoch in which they began to differ.
    """

    def __init__(self) -> None:
        self.digests: list[str] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        state = {
            "weights": pl_module.state_dict(),
            "optimizer": [optimizer.state_dict() for optimizer in trainer.optimizers],
        }
        self.digests.append(digest([*self.digests[-1:], state]))

    def state_dict(self) -> dict[str, Any]:
        """Return the digests so far, for the checkpoint."""
        return {"digests": list(self.digests)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.digests = list(state_dict["digests"])


def digest(value: Any) -> str:
    """Return the SHA-256 of nested mappings and sequences of tensors and plain values."""
    sha = hashlib.sha256()
    _update(sha, value)
    return sha.hexdigest()


def _update(sha: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        sha.update(f"{value.dtype}{list(value.shape)}".encode())
        # As bytes, since numpy has no bfloat16
        sha.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        for key in value:
            sha.update(repr(key).encode())
            _update(sha, value[key])
    elif isinstance(value, list | tuple):
        for part in value:
            _update(sha, part)
    else:
        sha.update(repr(value).encode())
