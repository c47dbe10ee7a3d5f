"""The progress bar of a training run."""

from __future__ import annotations

import pytest
from lightning import Trainer
from rich.progress import Progress

from attnlab.training.callbacks.progress import ProgressBar


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
