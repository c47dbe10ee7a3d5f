"""Reading and writing metrics.csv."""

from __future__ import annotations

from pathlib import Path

from attnlab.runs.metrics_file import append_metrics, read_metrics


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
