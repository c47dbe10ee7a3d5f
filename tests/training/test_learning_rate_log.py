"""Logged learning rates."""

from types import SimpleNamespace
from typing import Any

import pytest

from attnlab.training.callbacks.progress import LearningRate


class Recorder:
    """A logger that keeps what it receives."""

    def __init__(self) -> None:
        self.rates: list[tuple[int, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.rates.append((step, metrics["lr-Adam"]))


class Adam:
    """An optimizer of which only the learning rate is read."""

    param_groups: list[dict[str, float]] = [{"lr": 0.5}]  # noqa: RUF012


@pytest.mark.parametrize(
    ("steps", "log_every_n_steps", "points"), [(100, 50, 100), (1000, 50, 200), (100_000, 50, 2000)]
)
def test_a_schedule_has_two_hundred_points(steps: int, log_every_n_steps: int, points: int) -> None:
    recorder = Recorder()
    trainer: Any = SimpleNamespace(
        accumulate_grad_batches=2,
        estimated_stepping_batches=steps,
        global_step=0,
        log_every_n_steps=log_every_n_steps,
        loggers=[recorder],
        optimizers=[Adam()],
    )
    module: Any = None
    callback = LearningRate()
    callback.on_train_start(trainer, module)
    for batch in range(2 * steps):
        trainer.global_step = batch // 2
        callback.on_train_batch_start(trainer, module, None, batch)
    assert len(recorder.rates) == points
    assert recorder.rates[0] == (0, 0.5)
    assert len({step for step, _ in recorder.rates}) == points
