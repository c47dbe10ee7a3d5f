from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attnlab.training.schedules import Constant, Halving, HalvingLR, InverseSigmoid, Linear, draw_forced

INPUTS = torch.zeros(2000, 7, dtype=torch.int64)


def test_constant() -> None:
    assert Constant(0.5).ratio(0) == Constant(0.5).ratio(10**6) == 0.5


def test_linear_falls_from_start_to_end_and_stays() -> None:
    schedule = Linear(start=1.0, end=0.2, steps=4)
    assert [schedule.ratio(step) for step in (0, 1, 2, 4, 100)] == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.2])


def test_inverse_sigmoid_by_hand() -> None:
    schedule = InverseSigmoid(k=10.0)
    assert schedule.ratio(0) == pytest.approx(10 / 11)
    assert schedule.ratio(10) == pytest.approx(10 / (10 + math.e))
    assert schedule.ratio(10**9) == pytest.approx(0.0)


def test_full_forcing_draws_nothing() -> None:
    assert draw_forced(Constant(1.0), 0, INPUTS) is None


def test_per_step_draws_once_for_the_whole_batch() -> None:
    forced = draw_forced(Constant(0.5, per="step"), 0, INPUTS)
    assert forced is not None
    assert forced.shape == INPUTS.shape
    assert (forced == forced[:1]).all()


def test_per_token_draws_for_each_token_at_the_ratio() -> None:
    forced = draw_forced(Constant(0.3, per="token"), 0, INPUTS)
    assert forced is not None
    assert not (forced == forced[:1]).all()
    # 14,000 draws: five standard deviations are 0.019
    assert forced.float().mean().item() == pytest.approx(0.3, abs=0.02)


def test_no_forcing() -> None:
    forced = draw_forced(Constant(0.0), 0, INPUTS)
    assert forced is not None
    assert not forced.any()


def test_halving_by_hand() -> None:
    """Ten steps an epoch, constant for 5 epochs, then halved every half epoch."""
    factor = Halving(steps_per_epoch=10, after=5, every=0.5)
    assert [factor(step) for step in (0, 49, 50, 54, 55, 60, 79)] == [1, 1, 0.5, 0.5, 0.25, 0.125, 0.5**6]


def test_halving_every_two_epochs_moves_the_rate() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.7)
    scheduler = HalvingLR(optimizer, steps_per_epoch=2, after=5, every=2)
    rates = []
    for _ in range(15 * 2):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    by_epoch = rates[::2]
    assert by_epoch == pytest.approx(
        [0.7] * 5 + [0.35] * 2 + [0.175] * 2 + [0.0875] * 2 + [0.04375] * 2 + [0.021875] * 2
    )
