"""Averaged weights in validation and in checkpoints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from omegaconf import DictConfig

from attnlab.training.callbacks.checkpoints import BestCheckpoint
from attnlab.training.callbacks.weight_averaging import WeightAveraging
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

DECAY = 0.7


class Recorder(Callback):
    """Records the weights after each training step and at the start of each validation batch."""

    def __init__(self) -> None:
        self.steps: list[torch.Tensor] = []
        self.validated: list[torch.Tensor] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.steps.append(flat(pl_module))

    def on_validation_batch_start(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.validated.append(flat(pl_module))


def flat(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


@pytest.mark.slow
@pytest.mark.parametrize("first_epoch", [0, 1])
def test_averaged_weights_are_validated_saved_and_kept(
    first_epoch: int, composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "data.train_size=40", "optimizer.lr=0.05"))
    recorder = Recorder()
    best = tmp_path / "checkpoints" / "best.ckpt"
    callbacks = [
        recorder,
        WeightAveraging(decay=DECAY, update_starting_at_epoch=first_epoch),
        BestCheckpoint(best, monitor="val/loss", mode="max"),  # the first epoch has the highest loss
    ]
    settings = {**QUIET, "enable_checkpointing": True, "num_sanity_val_steps": 0}
    trainer = Trainer(max_epochs=3, logger=False, callbacks=callbacks, **settings)
    trainer.fit(module, datamodule=data)

    epoch = len(recorder.steps) // 3
    averages = [recorder.steps[0]]
    for n, weights in enumerate(recorder.steps[1:], start=1):
        decay = DECAY if n >= first_epoch * epoch else 0.0
        averages.append(decay * averages[-1] + (1 - decay) * weights)
    for n, validated in enumerate(recorder.validated[:3], start=1):
        torch.testing.assert_close(validated, averages[n * epoch - 1])
    torch.testing.assert_close(flat(module), averages[-1])

    saved = torch.load(best, weights_only=True)
    assert saved["global_step"] == epoch
    trainer.validate(module, datamodule=data, ckpt_path=best, verbose=False)
    torch.testing.assert_close(recorder.validated[-1], averages[epoch - 1])
    torch.testing.assert_close(flat(module), averages[epoch - 1])
