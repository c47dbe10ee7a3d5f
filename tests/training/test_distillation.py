"""Knowledge distillation: the loss by hand, its gradient, its part in training, and whole commands."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from torch import Tensor

from attnlab.api.model import load
from attnlab.config import build
from attnlab.training import components
from attnlab.training.losses import Distillation
from attnlab.types import Batch
from commands import attnlab
from networks import forced_logits, make_batch, make_network
from tiny_runs import SYNTHETIC, TINY, training_loss

Composed = Callable[..., DictConfig]


class Constant(torch.nn.Module):
    """A teacher with the same logits at each of the real positions."""

    def forward(self, batch: Batch) -> None:
        return None

    def logits(self, decoded: None, copy_ids: Tensor | None, where: Tensor) -> Tensor:
        return torch.tensor([0.25, 0.75]).log().expand(int(where.sum()), 2)


def test_loss_equals_the_cross_entropy_by_hand() -> None:
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
