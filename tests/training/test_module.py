"""The LightningModule: its loss, its scores, and the settings of training."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning import Callback, Trainer
from omegaconf import DictConfig

from attnlab.errors import UserError
from attnlab.runs.metrics_file import read_metrics
from attnlab.training.callbacks import Guard
from attnlab.training.loggers import MetricsFile
from attnlab.types import PAD, Batch
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all, training_loss

Composed = Callable[..., DictConfig]


def wider(batch: Batch, columns: int) -> Batch:
    """The same batch, padded further."""
    return batch._replace(source=F.pad(batch.source, (0, columns)), target=F.pad(batch.target, (0, columns)))


@pytest.mark.parametrize("settings", [(), ("loss.label_smoothing=0.2",), ("decoder=luong",)])
def test_the_loss_does_not_depend_on_padding(composed: Composed, settings: tuple[str, ...]) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, *settings))
    batch = data.examples("train")[[0, 1, 2]]
    torch.testing.assert_close(training_loss(module, batch), training_loss(module, wider(batch, 5)))


def test_the_loss_is_a_mean_over_tokens_and_not_over_sentences(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    examples = data.examples("train")
    parts = [examples[[place]] for place in (0, 1, 2)]
    losses = torch.stack([training_loss(module, part) for part in parts])
    counts = torch.tensor([float((part.labels != 0).sum()) for part in parts])
    together = training_loss(module, examples[[0, 1, 2]])
    torch.testing.assert_close(together, (losses * counts).sum() / counts.sum())


def test_label_smoothing_by_hand(composed: Composed) -> None:
    plain, data = build_all(composed(*TINY, *SYNTHETIC))
    batch = data.examples("train")[[0, 1]]
    _, logits, labels = plain.teacher_forced(batch)
    log_p = logits.log_softmax(dim=-1)
    expected = -(0.9 * log_p[torch.arange(len(labels)), labels] + 0.1 * log_p.mean(dim=-1)).mean()
    plain.label_smoothing = 0.1
    torch.testing.assert_close(training_loss(plain, batch), expected)


def test_smoothing_of_a_readout_that_copies_takes_no_notice_of_batch_mates(composed: Composed) -> None:
    """With a hundred padded source positions or none, of which nothing can be copied."""
    words = (*TINY, *SYNTHETIC, "readout=pointer_generator", "loss.label_smoothing=0.1")
    module, data = build_all(composed(*words))
    batch = data.examples("train")[[0, 1, 2]]
    assert batch.copy_ids is not None
    padded = wider(batch, 100)._replace(copy_ids=F.pad(batch.copy_ids, (0, 100)))
    torch.testing.assert_close(training_loss(module, batch), training_loss(module, padded))
    _, log_p, labels = module.teacher_forced(batch)
    even = log_p[:, : module.vocabularies.target.size].mean(dim=-1)
    expected = -(0.9 * log_p[torch.arange(len(labels)), labels] + 0.1 * even).mean()
    torch.testing.assert_close(training_loss(module, batch), expected)


def test_without_teacher_forcing_the_reference_is_not_read(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "teacher_forcing.value=0"))
    batch = data.examples("train")[[0, 1]]
    other = batch._replace(target=batch.target.clone())
    other.target[:, 1] = 49  # read by a teacher-forced decoder, and a label of its own
    forced = torch.zeros_like(batch.inputs, dtype=torch.bool)
    one, two = (module.network(b, forced) for b in (batch, other))
    torch.testing.assert_close(one.features, two.features)


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "bf16-mixed"},
        {"accumulate_grad_batches": 2},
        {"gradient_clip_val": 0.1},
        {"limit_train_batches": 2},
        {"val_check_interval": 1},
    ],
    ids=str,
)
def test_settings_of_the_trainer_train(composed: Composed, settings: dict[str, Any]) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "scheduler=halving", "optimizer.lr=0.01"))
    before = [parameter.detach().clone() for parameter in module.parameters()]
    trainer = Trainer(max_epochs=2, logger=False, **QUIET, **settings)
    trainer.fit(module, datamodule=data)
    assert all(parameter.isfinite().all() for parameter in module.parameters())
    assert any(not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))
    assert 0 < float(trainer.callback_metrics["val/loss"]) < 10


def test_accumulation_steps_as_often_as_its_scheduler_was_told(composed: Composed) -> None:
    """3 batches an epoch, accumulated by 2: 2 steps an epoch, and OneCycleLR refuses a step too many."""
    module, data = build_all(composed(*TINY, *SYNTHETIC, "scheduler=one_cycle"))
    trainer = Trainer(max_epochs=3, logger=False, accumulate_grad_batches=2, **QUIET)
    trainer.fit(module, datamodule=data)
    assert trainer.global_step == 3 * 2


class Steps(Callback):
    """The loss of each step, and the tokens it is a mean over."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.seen.append((float(outputs["loss"]), int((batch.labels != PAD).sum())))


def test_every_other_loss_is_logged_and_each_epochs_mean_over_its_tokens(
    composed: Composed, tmp_path: Path
) -> None:
    """3 batches an epoch, with a validation after each."""
    module, data = build_all(composed(*TINY, *SYNTHETIC, "optimizer.lr=0.05"))
    steps, metrics = Steps(), MetricsFile(tmp_path / "metrics.csv")
    settings = {**QUIET, "log_every_n_steps": 2, "val_check_interval": 1, "max_epochs": 2}
    Trainer(logger=metrics, callbacks=[steps], **settings).fit(module, datamodule=data)
    logged = read_metrics(metrics.path)
    losses = [loss for loss, _ in steps.seen]
    assert logged["train/loss"] == [(step, losses[step]) for step in (1, 3, 5)]
    means = [
        sum(loss * tokens for loss, tokens in epoch) / sum(tokens for _, tokens in epoch)
        for epoch in (steps.seen[:3], steps.seen[3:])
    ]
    assert [step for step, _ in logged["train/loss_epoch"]] == [2, 5]
    assert [value for _, value in logged["train/loss_epoch"]] == pytest.approx(means)


@pytest.mark.parametrize(
    "clip", [{}, {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}], ids=str
)
@pytest.mark.parametrize("number", [math.inf, math.nan])
def test_a_gradient_that_is_not_finite_stops_before_the_next_step(
    composed: Composed, number: float, clip: dict[str, Any]
) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    passes = iter([1.0, 1.0, number])  # what the gradient is multiplied by: the loss stays as it is
    bias = next(parameter for name, parameter in module.named_parameters() if "bias" in name)
    bias.register_hook(lambda gradient: gradient * next(passes))
    trainer = Trainer(max_epochs=2, logger=False, callbacks=[Guard()], **QUIET, **clip)
    with pytest.raises(UserError, match=r"the norm of the gradient is .* not finite at step 3"):
        trainer.fit(module, datamodule=data)
    assert trainer.global_step == 3
