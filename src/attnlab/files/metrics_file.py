"""Format of `metrics.csv`, the file of all logged numbers of a run. Imports no torch.

One number per line: epoch (empty for numbers of no epoch), step, metric, value. Lines are only appended.
"""

import csv
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from attnlab.files.writing import name_full_disk

COLUMNS = ("epoch", "step", "metric", "value")


def append_metrics(path: Path, metrics: Mapping[str, float], *, epoch: int | None, step: int) -> None:
    """Append one line per metric; values are written with all their digits."""
    with name_full_disk(path), path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        for metric, value in metrics.items():
            writer.writerow(("" if epoch is None else epoch, step, metric, repr(float(value))))


def read_metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Read the (step, value) pairs of each metric, in the order logged.

    An incomplete last line, as a run that is still writing leaves it, is ignored. Without a file there are
    none.
    """
    series: dict[str, list[tuple[int, float]]] = {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else ()
    for row in csv.DictReader(line for line in lines if line.endswith("\n")):
        step = int(row["step"])
        if abs(step) >= 2**53:
            raise ValueError(f"step {step} is too large")
        series.setdefault(row["metric"], []).append((step, float(row["value"])))
    return series


def read_rows(path: Path) -> Iterator[tuple[int | None, int, dict[str, float]]]:
    """Yield epoch, step and metrics of the successive calls of `append_metrics`; no rows without a file."""
    if not path.is_file():
        return
    with path.open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    for (epoch, step), group in itertools.groupby(rows, key=lambda row: (row["epoch"], row["step"])):
        metrics: dict[str, float] = {}
        for row in group:
            if row["metric"] in metrics:
                yield int(epoch) if epoch else None, int(step), metrics
                metrics = {}
            metrics[row["metric"]] = float(row["value"])
        yield int(epoch) if epoch else None, int(step), metrics


def cut_incomplete_rows(path: Path, length: int) -> int:
    """Truncate the file to its last complete row within `length` bytes; returns the new length in bytes."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        content = file.read(length)
        complete = content.rfind(b"\n") + 1
        file.truncate(complete)
    return complete
