"""Losses beside the cross-entropy: by hand, their gradients and their part in training."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from omegaconf import DictConfig
from torch import Tensor

from attnlab.api.model import load
from attnlab.config import build
from attnlab.errors import UserError
from attnlab.files.metrics_file import read_metrics
from attnlab.training import components
from attnlab.training.loggers import MetricsFile
from attnlab.training.losses import Distillation, entropy_loss, guided_alignment_loss
from attnlab.types import PAD, Batch
from commands import attnlab
from networks import forced_logits, make_batch, make_network
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all, training_loss

Composed = Callable[..., DictConfig]


def test_guided_alignment_equals_the_cross_entropy_by_hand() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]], [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]]])
    alignment = torch.tensor(
        [[[False, True, True], [True, False, False]], [[False] * 3, [False, False, True]]]
    )
    real = torch.tensor([[True, True], [True, True]])
    # the third target token has no link, and adds 0
    expected = (-math.log(0.25) - math.log(0.1) - math.log(0.5)) / 4
    assert guided_alignment_loss(weights, alignment, real).item() == pytest.approx(expected)
    assert guided_alignment_loss(weights, torch.zeros_like(alignment), real).item() == 0
    assert guided_alignment_loss(weights, torch.zeros_like(alignment), ~real).item() == 0


def test_zero_weights_of_a_guided_alignment_have_a_finite_loss_and_gradient() -> None:
    weights = torch.zeros(1, 1, 2, requires_grad=True)
    loss = guided_alignment_loss(
        weights, torch.ones(1, 1, 2, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    )
    loss.backward()
    assert loss.isfinite()
    assert weights.grad.isfinite().all()


def test_training_adds_the_weighted_loss_of_the_alignment(composed: Composed) -> None:
    losses = {}
    for weight in (0.0, 0.5):
        torch.manual_seed(1)
        module, data = build_all(composed(*TINY, *SYNTHETIC, f"loss.alignment={weight}"))
        batch = data.examples("train")[[0, 1, 2]]
        losses[weight] = training_loss(module, batch, data)
        decoded = module.teacher_forced(batch)[0]
    gold = module.gold_alignment(batch, "train")
    assert gold[0, :, : int(batch.source_lengths[0])].sum() == int(batch.target_text[0].sum())
    expected = losses[0.0] + 0.5 * guided_alignment_loss(decoded.weights, gold, batch.labels != PAD)
    torch.testing.assert_close(losses[0.5], expected)


def test_guided_alignment_needs_alignments(composed: Composed, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"a {word}\tb {word}\n" for word in "abcdefghijklmnop"))
    module, data = build_all(composed(*TINY, "data=pairs", f"data.path={pairs}", "loss.alignment=0.5"))
    with pytest.raises(UserError, match=r"data\.alignments_path"):
        training_loss(module, data.examples("train")[[0, 1]], data)


def test_guided_alignment_needs_weights_that_are_trained(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "attention=mean", "loss.alignment=0.5"))
    with pytest.raises(UserError, match="has no weights to train"):
        training_loss(module, data.examples("train")[[0, 1]], data)


def test_entropy_loss_is_the_mean_of_real_tokens() -> None:
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


def test_weight_of_the_entropy_grows_with_the_square_of_the_steps(composed: Composed, tmp_path: Path) -> None:
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


class Constant(torch.nn.Module):
    """A teacher with the same logits at each of the real positions."""

    def forward(self, batch: Batch) -> None:
        return None

    def logits(self, decoded: None, copy_ids: Tensor | None, where: Tensor) -> Tensor:
        return torch.tensor([0.25, 0.75]).log().expand(int(where.sum()), 2)


def test_distillation_equals_the_cross_entropy_by_hand() -> None:
    batch = make_batch([[4], [5, 6]], [[], [4]])  # three labels, EOS included
    logits = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]).log()
    expected = -sum(0.25 * math.log(one) + 0.75 * math.log(1 - one) for one in (0.5, 0.25, 0.9)) / 3
    loss = Distillation(Constant(), weight=0.5).loss(logits, batch)
    assert loss.item() == pytest.approx(expected)


def test_gradient_is_zero_where_the_network_equals_its_teacher() -> None:
    network, batch = make_network(seed=1), make_batch([[4, 5], [6]], [[7], [8, 9, 4]])
    logits = forced_logits(network, batch)[batch.labels != 0].detach().requires_grad_()
    Distillation(network, weight=1.0).loss(logits, batch).backward()
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-6)


def test_training_mixes_both_losses_and_neither_trains_nor_saves_the_teacher(composed: Composed) -> None:
    config = composed(*TINY, *SYNTHETIC, "distillation.weight=0.25")
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    data.setup("fit")
    torch.manual_seed(1)
    network, teacher = build.build_network(config, vocabularies), build.build_network(config, vocabularies)
    batch = data.examples("train")[[0, 1, 2]]
    parts = network, vocabularies, corpus
    plain = training_loss(components.build_module(config, *parts), batch, data)
    module = components.build_module(config, *parts, teacher.eval())
    mixed = training_loss(module, batch, data)
    _, logits, _ = module.teacher_forced(batch)
    torch.testing.assert_close(mixed, 0.75 * plain + 0.25 * module.distillation.loss(logits, batch))
    mixed.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert len([*module.parameters()]) == len([*network.parameters()])
    assert module.state_dict().keys() == {f"network.{name}" for name in network.state_dict()}


SHORT = (
    *TINY,
    "data.train_size=64",
    "data.val_size=8",
    "data.test_size=8",
    "trainer.max_epochs=1",
    "logger=none",
    "callbacks.attention_figures.count=0",
    "search.max_length=6",
)


@pytest.mark.slow
def test_train_from_an_ensemble(tmp_path: Path) -> None:
    attnlab("train", "-m", *SHORT, "name=teachers", "seed=0,1", folder=tmp_path)
    one, two = sorted((tmp_path / "outputs/teachers").glob("additive-*"))
    teachers = f"distillation.teachers=[{one},{two}]"
    attnlab("train", *SHORT, teachers, "name=student", folder=tmp_path)
    (student,) = (tmp_path / "outputs/student").iterdir()
    assert "train/distillation_loss" in (student / "metrics.csv").read_text()
    one.rename(tmp_path / "moved")
    assert load(student).translate("3 4 5")  # needs no teacher

    missing = attnlab("train", *SHORT, teachers, "name=other", folder=tmp_path, code=2)
    assert f"distillation.teachers: {one} does not exist" in missing.stderr
    others = attnlab(
        "train", *SHORT, f"distillation.teachers=[{two}]", "data.symbols=5", folder=tmp_path, code=2
    )
    assert "differ in their vocabularies" in others.stderr
    copying = attnlab(
        "train",
        *SHORT,
        f"distillation.teachers=[{two}]",
        "readout=pointer_generator",
        folder=tmp_path,
        code=2,
    )
    assert "differ in whether the readout copies" in copying.stderr
