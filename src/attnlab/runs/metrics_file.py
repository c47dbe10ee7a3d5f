"""Format of `metrics.csv`, the file of all logged numbers of a run. Imports no torch.

One number per line: epoch (empty for numbers of no epoch), step, metric, value. Lines are only appended.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

COLUMNS = ("epoch", "step", "metric", "value")


def append_metrics(path: Path, metrics: Mapping[str, float], *, epoch: int | None, step: int | None) -> None:
    """Append one line per metric; values are written with all their digits."""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        for metric, value in metrics.items():
            writer.writerow(("" if epoch is None else epoch, step, metric, repr(float(value))))


def read_metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Read the (step, value) pairs of each metric, in the order logged.

    An incomplete last line, as a run that is still writing leaves it, is ignored.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for row in csv.DictReader(line for line in lines if line.endswith("\n")):
        series.setdefault(row["metric"], []).append((int(row["step"]), float(row["value"])))
    return series
