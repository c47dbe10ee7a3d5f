"""Entropy of attention weights: the loss by hand, and its growing part in training."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig

from attnlab.files.metrics_file import read_metrics
from attnlab.training.loggers import MetricsFile
from attnlab.training.losses import entropy_loss
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all


def test_loss_is_the_mean_entropy_of_real_tokens() -> None:
    weights = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [[0.25, 0.25, 0.5], [0.2, 0.3, 0.5]]])
    real = torch.tensor([[True, True], [True, False]])
    # entropies ln 2, 0 and 1.5 ln 2
    assert entropy_loss(weights, real).item() == pytest.approx(2.5 * math.log(2) / 3)
    assert entropy_loss(weights, ~real & False).item() == 0


class Totals(Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.losses.append(float(outputs["loss"]))


def test_weight_of_the_loss_grows_with_the_square_of_the_steps(
    composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "loss.entropy=2"))
    totals, metrics = Totals(), MetricsFile(tmp_path / "metrics.csv")
    Trainer(max_epochs=2, logger=metrics, callbacks=[totals], **QUIET).fit(module, datamodule=data)
    logged = read_metrics(metrics.path)
    losses, entropies = ([value for _, value in logged[f"train/{name}loss"]] for name in ("", "entropy_"))
    assert len(losses) == 6
    expected = [
        loss + 2 * (n / 6) ** 2 * entropy
        for n, (loss, entropy) in enumerate(zip(losses, entropies, strict=True))
    ]
    assert totals.losses == pytest.approx(expected)
