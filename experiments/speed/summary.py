"""Print the tables of this folder's README from the CSV files of the measurements: python summary.py"""

from itertools import takewhile
from pathlib import Path

import pandas as pd

from attnlab.report.tables import markdown

TABLES = {
    "JoeyNMT 2.3.0: 20 training batches of 64, two layers of 512 units on each side, vocabularies of 8,000; "
    "search for 256 sentences of 30 steps": "peers.csv",
    "Decoding with the untrained CoNaLa model, two threads: 100 intents one at a time, or 2,000 in batches "
    "of 500": "decoding.csv",
}
"""Captions and files."""

LEFT_OUT = ("best s",)
"""Columns that are in the files only."""


def main() -> None:
    """Print Markdown."""
    for caption, name in TABLES.items():
        print(f"{caption} ([numbers]({name})):\n")
        print(table(name))


def table(name: str) -> str:
    """Return the table of a file as Markdown."""
    rows = pd.read_csv(Path(__file__).with_name(name), dtype=str, keep_default_na=False)
    rows = rows[[column for column in rows.columns if column not in LEFT_OUT]]
    first, *others = rows.columns
    texts = takewhile(lambda column: not rows[column].map(is_number).all(), others)
    return markdown(rows.set_index([first, *texts]))


def is_number(text: str) -> bool:
    """Return whether this is a decimal number."""
    return text.replace(".", "", 1).removeprefix("-").isdigit()


if __name__ == "__main__":
    main()
