"""Print the table of this folder's README from results.csv, which measure.py writes: python summary.py"""

from pathlib import Path

import pandas as pd

from attnlab.report.tables import markdown


def main() -> None:
    """Print Markdown."""
    rows = pd.read_csv(Path(__file__).with_name("results.csv"), dtype=str, keep_default_na=False)
    print(markdown(rows.map(grouped).set_index(rows.columns[0])))


def grouped(text: str) -> str:
    """Return a whole number with separators of thousands, and any other text as it is."""
    return f"{int(text):,}" if text.isdigit() else text


if __name__ == "__main__":
    main()
