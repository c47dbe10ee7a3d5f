"""Tables of what was measured: on the terminal, and as files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

Rows = Sequence[Mapping[str, object]]


def tell(rows: Rows, title: str, path: Path | None) -> None:
    """Print a table, and write it to a file where one is asked for."""
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(soft_wrap=True).print(table)
    if path:
        write(rows, path)


def write(rows: Rows, path: Path) -> None:
    """As comma-separated values."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
