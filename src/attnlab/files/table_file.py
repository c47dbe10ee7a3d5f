"""CSV files whose texts a spreadsheet does not run as formulas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

FORMULA = re.compile(r"'*[=+\-@\t\r]")
"""Start of a text that a spreadsheet runs as a formula, or of one that is escaped already."""


def format_csv(frame: pd.DataFrame) -> str:
    """Return a frame without its index as CSV, with its numbers unrounded and its texts escaped."""
    text: str = (
        frame.map(escape_formula).rename(columns=escape_formula).to_csv(index=False, lineterminator="\n")
    )
    return text


def escape_formula(cell: object) -> object:
    """Put a "'" before a text that a spreadsheet would run as a formula."""
    return f"'{cell}" if isinstance(cell, str) and FORMULA.match(cell) else cell


def unescape_formula(cell: str) -> str:
    """Return the text that `escape_formula` escaped."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell[1:]) else cell
