"""Guided alignment: the loss by hand, and its part in training."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from attnlab.errors import UserError
from attnlab.training.losses import guided_alignment_loss
from attnlab.types import PAD
from tiny_runs import SYNTHETIC, TINY, build_all, training_loss

Composed = Callable[..., DictConfig]


def test_loss_equals_the_cross_entropy_by_hand() -> None:
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


def test_zero_weights_have_a_finite_loss_and_gradient() -> None:
    weights = torch.zeros(1, 1, 2, requires_grad=True)
    loss = guided_alignment_loss(
        weights, torch.ones(1, 1, 2, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    )
    loss.backward()
    assert loss.isfinite()
    assert weights.grad.isfinite().all()


def test_training_adds_the_weighted_loss(composed: Composed) -> None:
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


def test_training_needs_alignments(composed: Composed, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"a {word}\tb {word}\n" for word in "abcdefghijklmnop"))
    module, data = build_all(composed(*TINY, "data=pairs", f"data.path={pairs}", "loss.alignment=0.5"))
    with pytest.raises(UserError, match=r"data\.alignments_path"):
        training_loss(module, data.examples("train")[[0, 1]], data)


def test_weights_must_be_trained(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "attention=mean", "loss.alignment=0.5"))
    with pytest.raises(UserError, match="has no weights to train"):
        training_loss(module, data.examples("train")[[0, 1]], data)
