"""Check that the loss and the gradients are finite."""

import math
from typing import Any

from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from attnlab.training.module import Seq2SeqModule, diverged


class Guard(Callback):
    """Stops training when the loss or the gradient norm is not finite; the last good checkpoint is kept.

    On a GPU each step is checked one step later, so that the check does not synchronise the device. It is
    always checked before a checkpoint could be saved that contains its result.
    """

    def __init__(self) -> None:
        self.pending: tuple[int, dict[str, Tensor]] | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Check this step on a CPU, and the previous one on a GPU."""
        assert isinstance(pl_module, Seq2SeqModule)
        self._check()
        values = {"loss": outputs["loss"]}
        # fp16 gradients may overflow: the step is then skipped and the scale reduced
        if pl_module.gradient_norm is not None and trainer.precision != "16-mixed":
            values["gradient norm"] = pl_module.gradient_norm
        self.pending = (trainer.global_step, values)
        if pl_module.device.type == "cpu":
            self._check()

    def _check(self, *_: Any, **__: Any) -> None:
        if self.pending is None:
            return
        step, values = self.pending
        self.pending = None
        for name, value in values.items():
            if not math.isfinite(value):
                raise diverged(name, float(value), step)

    on_train_epoch_end = on_validation_start = on_save_checkpoint = _check
