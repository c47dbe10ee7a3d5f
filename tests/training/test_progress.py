"""Progress of a training run in the terminal and in the logs, and the warning of busy cores."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lightning import Trainer
from rich.progress import Progress

from attnlab.training.callbacks import progress
from attnlab.training.callbacks.progress import BusyCores, LearningRate, ProgressBar
from commands import TINY_REVERSE, attnlab


@pytest.mark.parametrize(("width", "count"), [(80, 5), (79, 3), (40, 3)])
def test_narrow_terminal_shows_fewer_columns(width: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich._console", None)
    monkeypatch.setenv("COLUMNS", str(width))
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=1)
    columns = ProgressBar().configure_columns(trainer)
    assert len(columns) == count
    progress = Progress(*columns)
    progress.add_task("epoch 1/100", total=12345, completed=12345, visible=True)
    assert "12345/12345" in "".join(segment.text for segment in progress.console.render(progress))


def test_log_has_scores_of_epochs_with_a_validation_and_no_tips_of_lightning(tmp_path: Path) -> None:
    every_second = ("trainer.max_epochs=4", "trainer.check_val_every_n_epoch=2")
    attnlab("train", *TINY_REVERSE, *every_second, "callbacks.attention_figures.count=0", folder=tmp_path)
    (log,) = tmp_path.glob("outputs/*/*/train.log")
    lines = [line for line in log.read_text().splitlines() if "epoch " in line and "train/loss" in line]
    assert ["val/loss" in line for line in lines] == [False, True, False, True]
    assert not re.search("py.warnings|Tip:|weights_only", log.read_text())


CHILD = """
import os, subprocess, sys, time
from attnlab.training.callbacks import progress
from attnlab.training.callbacks.progress import BusyCores

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
spin = [sys.executable, "-c", "while True: pass"]
others = [subprocess.Popen(spin) for _ in range(int(sys.argv[1]))]
progress.SECONDS = 1.0
callback = BusyCores()
callback.on_train_start(None, None)
end = time.perf_counter() + 1.5
while time.perf_counter() < end:
    callback.on_train_batch_end(None, None, None, None, 0)
for other in others:
    other.kill()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread waited for a core")
def test_threads_that_wait_for_a_core_are_reported_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "3"], capture_output=True, text=True, check=True)
    assert done.stderr.count("other programs use the cores") == 1, done.stderr


def test_a_thread_that_started_in_the_meantime_has_waited_since_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waited = iter([{"1": 50.0}, {"1": 50.0, "2": 0.9}])
    clock = iter([100.0, 101.0, 103.0])
    monkeypatch.setattr(progress, "waiting_times", lambda: next(waited))
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(progress, "SECONDS", 2.0)
    callback: Any = BusyCores()
    callback.on_train_start(None, None)
    for _ in range(3):
        callback.on_train_batch_end(None, None, None, None, 0)
    assert "threads of this run wait 30 % of the time" in caplog.text


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
