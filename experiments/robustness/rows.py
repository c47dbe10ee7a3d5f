"""CSV files of these measurements, which continue after the rows that exist."""

import csv
from collections.abc import Mapping
from pathlib import Path


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read the rows of a file; [] if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_row(path: Path, row: Mapping[str, object]) -> None:
    """Append a row, and the header before the first one."""
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)
