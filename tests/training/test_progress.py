"""Progress of a training run in the terminal and in the logs."""

import re
from pathlib import Path

import pytest
from lightning import Trainer
from rich.progress import Progress

from attnlab.training.callbacks.progress import ProgressBar
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
    attnlab("train", *TINY_REVERSE, *every_second, folder=tmp_path)
    (log,) = tmp_path.glob("outputs/*/*/train.log")
    lines = [line for line in log.read_text().splitlines() if "epoch " in line and "train/loss" in line]
    assert ["val/loss" in line for line in lines] == [False, True, False, True]
    assert not re.search("py.warnings|Tip:|weights_only", log.read_text())
