"""Learning-rate schedules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnlab.training.learning_rate import Halving, HalvingLR, OneCycleLR


def test_halving_matches_a_manual_calculation() -> None:
    """Ten steps per epoch, constant for 5 epochs, then halved every half epoch."""
    factor = Halving(steps_per_epoch=10, after=5, every=0.5)
    assert [factor(step) for step in (0, 49, 50, 54, 55, 60, 79)] == [1, 1, 0.5, 0.5, 0.25, 0.125, 0.5**6]


def test_halving_lr_sets_the_learning_rate_of_the_optimizer() -> None:
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


@pytest.mark.parametrize("steps", [1, 9, 10, 11, 20])
def test_one_cycle_exists_for_every_number_of_steps(steps: int) -> None:
    """torch's schedule divides by 0 if the warm-up has exactly one step."""
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    scheduler = OneCycleLR(optimizer, max_lr=1.0, total_steps=steps, pct_start=0.1, cycle_momentum=False)
    rates = []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < steps - 1:
            scheduler.step()
    assert all(0 < rate <= 1 for rate in rates)
    assert rates.index(max(rates)) == (1 if steps >= 10 else 0)
    assert rates[1:] == sorted(rates[1:], reverse=True)
