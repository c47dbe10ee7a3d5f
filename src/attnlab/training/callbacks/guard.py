"""Stop where numbers have stopped meaning anything."""

from __future__ import annotations

import math
from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from attnlab.errors import UserError
from attnlab.training.module import Seq2SeqModule


class Guard(Callback):
    """Stops a run whose loss or gradient is no longer finite; the last good checkpoint stays.

    A step is looked at one step late on a GPU, so that looking never makes a step wait, and always before a
    checkpoint could be written with what it led to.
    """

    def __init__(self) -> None:
        self.pending: tuple[int, dict[str, Tensor]] | None = None

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Look at this step, or on a GPU at the one before."""
        assert isinstance(pl_module, Seq2SeqModule)
        self._look()
        numbers = {"loss": outputs["loss"]}
        # With fp16 a gradient may overflow: the step is left out, and the scale lowered
        if pl_module.gradient_norm is not None and trainer.precision != "16-mixed":
            numbers["norm of the gradient"] = pl_module.gradient_norm
        self.pending = (trainer.global_step, numbers)
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

    def _look(self) -> None:
        if self.pending is None:
            return
        step, numbers = self.pending
        self.pending = None
        for name, number in numbers.items():
            if not math.isfinite(number):
                raise UserError(
                    f"the {name} is {float(number)}, which is not finite at step {step}: lower optimizer.lr, "
                    "set trainer.gradient_clip_val, or set trainer.precision=32-true; the last good "
                    "checkpoint is kept"
                )
