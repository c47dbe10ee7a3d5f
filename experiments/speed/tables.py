"""Tables of measurements, printed and written as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

Rows = Sequence[Mapping[str, object]]


def print_table(rows: Rows, title: str, path: Path | None) -> None:
    """Print a table, and write it as CSV if a path is given."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(soft_wrap=True).print(table)
    if path:
        write_csv(rows, path)


def write_csv(rows: Rows, path: Path) -> None:
    """Write rows with a header as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
