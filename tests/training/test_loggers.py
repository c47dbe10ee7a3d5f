"""metrics.csv, to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab.runs.metrics_file import read_metrics
from attnlab.training.loggers import MetricsFile


def test_the_file_is_cut_to_what_was_there_when_the_checkpoint_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    metrics = MetricsFile(path)
    assert metrics.flush() == 0
    metrics.log_metrics({"train/loss": 0.1, "epoch": 0}, step=4)
    length = metrics.flush()
    before = path.read_bytes()
    assert length == len(before)
    metrics.log_metrics({"val/loss": 1 / 3, "epoch": 0}, step=4)  # the same step, on the other side
    after = path.read_bytes()

    for cut in (len(after), len(after) - 9, length):  # whole, in the middle of a row, before it
        path.write_bytes(after[:cut])
        MetricsFile(path).rewind(length)
        assert path.read_bytes() == before
    metrics.log_metrics({"val/loss": 1 / 3, "epoch": 0}, step=4)
    assert path.read_bytes() == after


def test_a_run_that_never_saved_begins_anew(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.csv")
    metrics.rewind(0)
    for _ in range(2):
        metrics.log_metrics({"a": 1.0}, step=1)
        assert metrics.path.read_text() == "epoch,step,metric,value\n,1,a,1.0\n"
        metrics.rewind(0)


def test_lines_that_somebody_removed_are_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    MetricsFile(tmp_path / "metrics.csv").rewind(7)
    assert "lacks the numbers of before the checkpoint" in caplog.text


def test_a_last_line_cut_short_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    MetricsFile(path).log_metrics({"a": 1.5, "b": 0.125}, step=3)
    whole = path.read_bytes()
    for cut in range(whole.index(b",b,") - 3, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert read_metrics(path) == {"a": [(3, 1.5)]}, whole[:cut]
    path.write_bytes(whole)
    assert read_metrics(path)["b"] == [(3, 0.125)]
