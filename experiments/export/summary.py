"""Print the table of this folder's README from results.csv, which measure.py writes: python summary.py"""

import csv
from pathlib import Path

from attnlab.report.tables import Cell, Column, Table


def main() -> None:
    """Print Markdown."""
    with Path(__file__).with_name("results.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    columns = [Column(header[0], numeric=False), *map(Column, header[1:])]
    cells = [[Cell(grouped(text)) for text in row] for row in rows]
    print(Table("results", "Programs", columns, cells).markdown())


def grouped(text: str) -> str:
    """Return a whole number with separators of thousands, and any other text as it is."""
    return f"{int(text):,}" if text.isdigit() else text


if __name__ == "__main__":
    main()
