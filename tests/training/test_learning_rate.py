"""Learning-rate schedules."""

import pytest
import torch
from torch import nn

from attnlab.errors import UserError
from attnlab.training.learning_rate import HalvingLR, OneCycleLR
from attnlab.training.module_arguments import schedule_arguments


@pytest.mark.parametrize(
    ("steps_per_epoch", "after", "every", "step", "rate"),
    [
        (10, 5, 0.5, 49, 0.7),
        (10, 5, 0.5, 50, 0.35),
        (10, 5, 0.5, 55, 0.175),
        (10, 5, 0.5, 79, 0.7 / 64),
        (2, 5, 2, 29, 0.7 / 32),
        (3, 6, 2, 17, 0.7),  # the last step of epoch 6
        (3, 6, 2, 18, 0.35),
        (3, 6, 2, 23, 0.35),
        (3, 6, 2, 24, 0.175),
    ],
)
def test_halving_starts_after_the_given_epochs(
    steps_per_epoch: int, after: int, every: float, step: int, rate: float
) -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.7)
    scheduler = HalvingLR(optimizer, steps_per_epoch=steps_per_epoch, after=after, every=every)
    for _ in range(step):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(rate)


@pytest.mark.parametrize("steps", [1, 9, 10, 11, 20])
def test_one_cycle_exists_for_every_number_of_steps(steps: int) -> None:
    """torch's schedule divides by 0 if the warm-up has exactly one step."""
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)
    scheduler = OneCycleLR(optimizer, max_lr=1.0, total_steps=steps, pct_start=0.1)
    rates = []
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < steps - 1:
            scheduler.step()
    assert all(0 < rate <= 1 for rate in rates)
    assert rates.index(max(rates)) == (1 if steps >= 10 else 0)
    assert rates[1:] == sorted(rates[1:], reverse=True)


def test_schedules_of_steps_are_not_updated_after_epochs() -> None:
    schedule = {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR"}
    arguments = schedule_arguments(0.1, interval="step", needs={"T_max": "total_steps"}, schedule=schedule)
    assert arguments["scheduler_needs"] == {"T_max": "total_steps"}
    with pytest.raises(UserError, match="this schedule counts steps"):
        schedule_arguments(0.1, interval="epoch", needs={"T_max": "total_steps"}, schedule=schedule)
