"""Print the tables of this folder's README from the CSV files of the measurements: python summary.py"""

from __future__ import annotations

import csv
from pathlib import Path

from attnlab.report.table import Cell, Column, Table

TABLES = {
    "Decoding 2,000 intents with the untrained CoNaLa model, 500 at a time, two threads": "decoding.csv",
    "From `attnlab train` to the end of the first step": "startup.csv",
    "The same with `logger=none`": "startup-no-logger.csv",
    "`attnlab train seed=0,1,2` one after the other, from the command to the figures": "first-model.csv",
}
"""Captions and files."""


def main() -> None:
    """Print Markdown."""
    for caption, name in TABLES.items():
        print(f"{caption} ([numbers]({name})):\n")
        print(table(name).markdown())


def table(name: str) -> Table:
    """Return the table of a file."""
    with Path(__file__).with_name(name).open(newline="") as file:
        header, *rows = csv.reader(file)
    numeric = [all(map(is_number, column)) for column in zip(*rows, strict=True)]
    columns = [Column(title, numeric=right) for title, right in zip(header, numeric, strict=True)]
    return Table("speed", "Speed", columns, [[Cell(text) for text in row] for row in rows])


def is_number(text: str) -> bool:
    """Return whether this is a decimal number."""
    return text.replace(".", "", 1).removeprefix("-").isdigit()


if __name__ == "__main__":
    main()
