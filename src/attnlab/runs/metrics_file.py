"""Reader of `metrics.csv`, the file of all logged numbers of a run. Imports no torch."""

from __future__ import annotations

import csv
from pathlib import Path

COLUMNS = ("epoch", "step", "metric", "value")


def read_metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Read the (step, value) pairs of each metric, in the order logged.

    An incomplete last line, as a run that is still writing leaves it, is ignored.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for row in csv.DictReader(line for line in lines if line.endswith("\n")):
        series.setdefault(row["metric"], []).append((int(row["step"]), float(row["value"])))
    return series
