"""Stop where numbers have stopped meaning anything."""

from __future__ import annotations

from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from attnlab.errors import UserError


class Guard(Callback):
    """Stops a run whose loss or gradient is no longer finite; the last good checkpoint stays.

    A loss is looked at one step late on a GPU, so that looking never makes a step wait, and always before a
    checkpoint could be written with it.
    """

    def __init__(self) -> None:
        self.pending: tuple[int, Tensor] | None = None

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Look at this step's loss, or on a GPU at the one before."""
        self._look()
        self.pending = (trainer.global_step, outputs["loss"].detach())
        if pl_module.device.type == "cpu":
            self._look()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave no step unseen."""
        self._look()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave no step unseen."""
        self._look()

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Leave no step unseen."""
        self._look()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        """On CPU, where it costs little, refuse a gradient that would spoil the weights."""
        if pl_module.device.type != "cpu":
            return
        gradients = [p.grad for p in pl_module.parameters() if p.grad is not None]
        if not torch.stack(torch._foreach_norm(gradients)).isfinite().all():
            raise UserError(self._message("the gradient", trainer.global_step))

    def _look(self) -> None:
        if self.pending is None:
            return
        step, loss = self.pending
        self.pending = None
        if not torch.isfinite(loss):
            raise UserError(self._message(f"the loss is {loss.item()}, which", step))

    @staticmethod
    def _message(what: str, step: int) -> str:
        return (
            f"{what} is not finite at step {step}: lower optimizer.lr, set trainer.gradient_clip_val, or "
            "set trainer.precision=32-true; the last good checkpoint is kept"
        )
