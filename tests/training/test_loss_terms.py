"""Terms of the loss: by hand, their gradients and their part in training."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Trainer
from omegaconf import DictConfig
from torch import Tensor

from attnlab.api.model import load
from attnlab.errors import UserError
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_identity import identify
from attnlab.training.loggers import MetricsFile
from attnlab.training.losses.alignment import GuidedAlignment
from attnlab.training.losses.base import LossTerm, Outputs
from attnlab.training.losses.coverage import Coverage
from attnlab.training.losses.distillation import Distillation
from attnlab.types import PAD, Batch
from commands import attnlab
from exports import write_checkpoint
from networks import forced_logits, make_batch, make_network
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all, training_loss

Composed = Callable[..., DictConfig]


def value_of(term: LossTerm, weights: Tensor, real: Tensor) -> Tensor:
    """Return the value of a term for attention weights [B, T, S] of targets that are real [B, T]."""
    empty = torch.empty(0)
    batch = Batch(empty, empty, F.pad(real.long(), (1, 0)), empty)
    return term(Outputs(weights.requires_grad_(), empty, empty), batch, 0.0)


def coverage_loss(weights: Tensor, real: Tensor) -> Tensor:
    return value_of(Coverage(), weights, real)


def guided_alignment_loss(weights: Tensor, alignment: Tensor, real: Tensor) -> Tensor:
    term = GuidedAlignment()
    term.gold_alignment = lambda *_: alignment
    return value_of(term, weights, real)


def test_guided_alignment_equals_the_cross_entropy_by_hand() -> None:
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.9, 0.0]], [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
    alignment = torch.tensor(
        [[[False, True, True], [True, False, False]], [[False] * 3, [False, False, False]]]
    )
    real = torch.tensor([[True, True], [True, False]])
    # the third target token has no link, and adds 0; the fourth is padding, and is not counted
    expected = (-math.log(0.25) - math.log(0.1)) / 3
    assert guided_alignment_loss(weights, alignment, real).item() == pytest.approx(expected)
    assert guided_alignment_loss(weights, torch.zeros_like(alignment), real).item() == 0
    assert guided_alignment_loss(weights, torch.zeros_like(alignment), ~real).item() == 0


def test_zero_weights_of_a_guided_alignment_have_a_finite_loss_and_gradient() -> None:
    weights = torch.zeros(1, 1, 2, requires_grad=True)
    loss = guided_alignment_loss(weights, torch.ones(1, 1, 2).bool(), torch.ones(1, 1).bool())
    loss.backward()
    assert loss.isfinite()
    assert weights.grad.isfinite().all()


TERMS: dict[str, Callable[[Any, Any, Tensor], Tensor]] = {
    "coverage": lambda module, batch, weights: coverage_loss(weights, batch.labels != PAD),
    "alignment": lambda module, batch, weights: guided_alignment_loss(
        weights, module.gold_alignment(batch, "train"), batch.labels != PAD
    ),
}


@pytest.mark.parametrize("mechanism", ["additive", "coverage_see"])
@pytest.mark.parametrize("term", TERMS)
def test_training_adds_the_weighted_term(term: str, mechanism: str, composed: Composed) -> None:
    losses = {}
    for weight in (0.0, 0.5):
        torch.manual_seed(1)
        overrides = (*TINY, *SYNTHETIC, f"attention={mechanism}", f"loss.terms.{term}.weight={weight}")
        module, data = build_all(composed(*overrides))
        batch = data.examples("train")[[0, 1, 2]]
        losses[weight] = training_loss(module, batch, data)
    value = TERMS[term](module, batch, module.teacher_forced(batch).weights)
    assert value > 0
    torch.testing.assert_close(losses[0.5], losses[0.0] + 0.5 * value)


def test_gold_alignment_links_the_target_tokens(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    training_loss(module, batch := data.examples("train")[[0, 1, 2]], data)
    gold = module.gold_alignment(batch, "train")
    assert gold[0, :, : int(batch.source_lengths[0])].sum() == int(batch.target_text[0].sum())


def test_coverage_loss_known_values() -> None:
    """Σ min(α, c) over three steps: 0, then min(½, 1) + 0, then min(¼, 3/2) + min(3/4, ½)."""
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]])
    assert coverage_loss(weights, torch.tensor([[True, True, True]])).item() == pytest.approx(
        (0.5 + 0.75) / 3
    )
    assert coverage_loss(weights, torch.tensor([[True, True, False]])).item() == pytest.approx(0.5 / 2)
    assert coverage_loss(weights, torch.tensor([[True, False, False]])).item() == 0
    assert coverage_loss(weights, torch.tensor([[False, False, False]])).item() == 0


def test_coverage_loss_is_a_mean_over_tokens() -> None:
    weights = torch.rand(3, 5, 4).softmax(dim=-1)
    lengths = torch.tensor([5, 1, 3])
    real = torch.arange(5) < lengths[:, None]
    alone = [
        coverage_loss(weights[row : row + 1, :n], real[row : row + 1, :n]) for row, n in enumerate(lengths)
    ]
    torch.testing.assert_close(coverage_loss(weights, real), (torch.stack(alone) * lengths).sum() / 9)


def test_guided_alignment_needs_alignments(composed: Composed, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"a {word}\tb {word}\n" for word in "abcdefghijklmnop"))
    settings = ("data=pairs", f"data.path={pairs}", "loss.terms.alignment.weight=0.5")
    module, data = build_all(composed(*TINY, *settings))
    with pytest.raises(UserError, match=r"data\.alignments_path"):
        training_loss(module, data.examples("train")[[0, 1]], data)


def test_guided_alignment_needs_weights_that_are_trained(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "attention=mean", "loss.terms.alignment.weight=0.5"))
    with pytest.raises(UserError, match="has no weights to train"):
        training_loss(module, data.examples("train")[[0, 1]], data)


class Progress(LossTerm):
    """A term of a user: it records the progress of the training."""

    seen: ClassVar[list[float]] = []

    def __call__(self, outputs: Outputs, batch: Batch, progress: float) -> Tensor:
        self.seen.append(progress)
        return outputs.logits.new_tensor(progress)


def test_terms_know_the_progress_and_are_logged(composed: Composed, tmp_path: Path) -> None:
    term = (f"loss.terms.mine._target_={__name__}.Progress", "loss.terms.mine.weight=3")
    module, data = build_all(composed(*TINY, *SYNTHETIC, *term))
    metrics = MetricsFile(tmp_path / "metrics.csv")
    Progress.seen.clear()
    Trainer(max_epochs=2, logger=metrics, **QUIET).fit(module, datamodule=data)
    assert Progress.seen == pytest.approx([n / 6 for n in range(6)])
    logged = [value for _, value in read_metrics(metrics.path)["train/mine_loss"]]
    assert logged == pytest.approx(Progress.seen)


def test_a_term_with_weight_zero_does_not_change_the_run(composed: Composed) -> None:
    plain, weighted, off = (
        identify(composed(*TINY, *term))
        for term in (
            (),
            ("loss.terms.coverage.weight=1",),
            ("loss=[coverage]", "loss.terms.coverage.weight=0"),
        )
    )
    assert plain == off != weighted


@pytest.mark.parametrize("term", ["coverage", "alignment", "label_smoothing"])
def test_a_term_of_another_class_is_another_run(term: str, composed: Composed) -> None:
    shipped = composed(*TINY, f"loss.terms.{term}.weight=1")
    own = shipped.copy()
    own.loss.terms[term]._target_ = "mine.Ten"
    assert identify(own) != identify(shipped)


class Constant(torch.nn.Module):
    """A teacher with the same logits at each of the real positions."""

    def forward(self, batch: Batch) -> None:
        return None

    def logits(self, decoded: None, copy_ids: Tensor | None, where: Tensor) -> Tensor:
        return torch.tensor([0.25, 0.75]).log().expand(int(where.sum()), 2)


def distillation(teacher: torch.nn.Module) -> Distillation:
    term = Distillation(teachers=["run"])
    term.teacher = teacher
    return term


def test_distillation_equals_the_cross_entropy_by_hand() -> None:
    batch = make_batch([[4], [5, 6]], [[], [4]])  # three labels, EOS included
    logits = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]).log()
    expected = -sum(0.25 * math.log(one) + 0.75 * math.log(1 - one) for one in (0.5, 0.25, 0.9)) / 3
    outputs = Outputs(torch.empty(0), logits, batch.labels[batch.labels != PAD])
    loss = distillation(Constant())(outputs, batch, 0.0)
    assert loss.item() == pytest.approx(expected)


def test_gradient_is_zero_where_the_network_equals_its_teacher() -> None:
    network, batch = make_network(seed=1), make_batch([[4, 5], [6]], [[7], [8, 9, 4]])
    real = batch.labels != PAD
    logits = forced_logits(network, batch)[real].detach().requires_grad_()
    distillation(network)(Outputs(torch.empty(0), logits, batch.labels[real]), batch, 0.0).backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(logits), rtol=0, atol=1e-6)


def test_training_mixes_both_losses_and_neither_trains_nor_saves_the_teacher(composed: Composed) -> None:
    config = composed(*TINY, *SYNTHETIC)
    torch.manual_seed(1)
    module, data = build_all(config)
    teacher = build_all(config)[0].network.eval()
    batch = data.examples("train")[[0, 1, 2]]
    plain = training_loss(module, batch, data)
    term = module.loss_terms["distillation"] = distillation(teacher)
    term.weight = 0.25
    mixed = training_loss(module, batch, data)
    value = term(module.teacher_forced(batch), batch, 0.0)
    torch.testing.assert_close(mixed, 0.75 * plain + 0.25 * value)
    mixed.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert len([*module.parameters()]) == len([*module.network.parameters()])
    assert module.state_dict().keys() == {f"network.{name}" for name in module.network.state_dict()}


SHORT = (*TINY, *SYNTHETIC, "trainer.max_epochs=1", "logger=none", "callbacks.attention_figures.count=0")


@pytest.mark.slow
def test_train_from_an_ensemble(tmp_path: Path) -> None:
    attnlab("train", *SHORT, "name=teacher", folder=tmp_path)
    (one,) = (tmp_path / "outputs/teacher").iterdir()
    two = write_checkpoint(tmp_path / "two", "data=synthetic", *SYNTHETIC)
    teachers = f"loss.terms.distillation.teachers=[{one},{two}]"
    attnlab("train", *SHORT, teachers, "name=student", folder=tmp_path)
    (student,) = (tmp_path / "outputs/student").iterdir()
    assert "train/distillation_loss" in (student / "metrics.csv").read_text()
    one.rename(tmp_path / "moved")
    assert load(student).translate("3 4 5")  # needs no teacher

    missing = attnlab("train", *SHORT, teachers, "name=other", folder=tmp_path, code=2)
    assert f"loss.terms.distillation.teachers: {one} does not exist" in missing.stderr
    for setting, difference in (
        ("data.symbols=5", "their vocabularies"),
        ("readout=pointer_generator", "whether the readout copies"),
    ):
        one_teacher = f"loss.terms.distillation.teachers=[{two}]"
        refused = attnlab("train", *SHORT, one_teacher, setting, folder=tmp_path, code=2)
        assert f"differ in {difference}" in refused.stderr
