from pathlib import Path

import pytest

from attnlab.files.metrics_file import append_metrics, read_metrics
from attnlab.training.loggers import MetricsFile


def test_values_keep_all_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    append_metrics(path, {"a,b": 1 / 3}, epoch=0, step=4)
    append_metrics(path, {"a,b": 2.5, "c": 1}, epoch=None, step=5)
    assert path.read_text().splitlines()[0] == "epoch,step,metric,value"
    assert read_metrics(path) == {"a,b": [(4, 1 / 3), (5, 2.5)], "c": [(5, 1.0)]}


def test_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    append_metrics(path, {"a": 1.5, "b": 0.125}, epoch=0, step=3)
    whole = path.read_bytes()
    for cut in range(whole.index(b",b,") - 3, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert read_metrics(path) == {"a": [(3, 1.5)]}, whole[:cut]
    path.write_bytes(whole)
    assert read_metrics(path)["b"] == [(3, 0.125)]


def test_file_cut_anywhere_continues_with_complete_rows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.csv"
    for step in range(9, 100, 10):
        append_metrics(path, {"train/loss": 1 / step, "val/a,b": 1.25 * step}, epoch=0, step=step)
    whole = path.read_bytes()
    rows = read_metrics(path)
    later = len(whole)  # rows after the checkpoint
    append_metrics(path, {"train/loss": 7.0}, epoch=1, step=109)
    longer = path.read_bytes()
    file = MetricsFile(path)
    for cut in range(len(longer) + 1):
        path.write_bytes(longer[:cut])
        caplog.clear()
        file.truncate(later)
        assert [message.startswith(f"{path} was cut: ") for message in caplog.messages] == [True] * (
            cut < later
        )
        file.log_metrics({"train/loss": 0.5, "epoch": 1}, step=109)
        read = read_metrics(path)
        assert read["train/loss"].pop() == (109, 0.5), cut
        for metric, values in read.items():
            assert values == rows[metric][: len(values)], cut
        assert cut < later or read == rows
    path.unlink()
    file.truncate(0)
    assert not path.exists()


def test_numbers_without_a_step_have_that_of_the_row_before(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    file.log_metrics({"early": 1.0})
    file.log_metrics({"a": 2.0}, step=7)
    file.log_metrics({"mine": 3.0})
    assert read_metrics(file.path) == {"early": [(0, 1.0)], "a": [(7, 2.0)], "mine": [(7, 3.0)]}
