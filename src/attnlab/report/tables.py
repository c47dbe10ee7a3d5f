"""Tables as pandas data frames, for pages and terminals and as CSV, Markdown and LaTeX."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import fmean
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich.table import Table as TerminalTable
from rich.text import Text

from attnlab.files.table_file import format_csv
from attnlab.files.terminal import escape_control_characters
from attnlab.metrics import registry
from attnlab.report.statistics import Estimate

MISSING = "–"

LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "{}$&#_%"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "±": r"$\pm$",
        "·": r"\textperiodcentered{}",
        "–": "--",
        "τ": r"$\tau$",
    }
)
"""Replacements for the characters that LaTeX does not print literally."""

MARKDOWN = re.compile(r"(?<![^\W_])_|_(?![^\W_])|[\\`*\[\]<>|~&$!]")
"""Characters that Markdown reads as markup, except underscores inside words."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table as two frames with equal rows: formatted for readers, and unrounded for CSV and sorting.

    The levels of the index are the texts that name a row, and the columns are numbers in their units. An
    interval is part of the text of a cell, and two further columns of the unrounded values.
    """

    name: str  # stem of its files
    title: str  # caption
    text: pd.DataFrame  # formatted cells
    values: pd.DataFrame  # unrounded; None where a cell is empty
    notes: Sequence[str] = ()  # remarks printed below the table
    # 1 for columns of which the highest mean is the best, -1 for the lowest; they are bold in LaTeX
    signs: Mapping[str, int] = field(default_factory=dict)

    def csv(self) -> str:
        """Return CSV with unrounded values; the ends of intervals are separate columns."""
        return format_csv(self.values.reset_index())

    def markdown(self) -> str:
        """Return a Markdown table, followed by the notes; see `markdown`."""
        return markdown(self.text, self.notes)

    def latex(self, columns: Sequence[str] = ()) -> str:
        r"""Return a LaTeX tabular that needs `\usepackage{booktabs}`, and T1 fonts for double quotes.

        Notes are comments. The best means are bold, those of each data set if there are several. `columns`
        are the columns to write; all by default.
        """
        cells = self.text[[*columns] or [*self.text.columns]].map(escape_latex)
        one = cells.index.nlevels == 1
        blocks = np.array([""] * len(cells) if one else [*cells.index.get_level_values(0)], dtype=object)
        for name in cells.columns.intersection([*self.signs]):
            means = self.signs[name] * self.values[name].astype(float)
            for block in {*blocks}:
                rows = blocks == block
                for row in np.flatnonzero(rows & (means == means[rows].max()) & (np.sum(rows) > 1)):
                    mean, bracket, interval = cells[name].iloc[row].partition(" [")
                    cells.iloc[row, cells.columns.get_loc(name)] = rf"\textbf{{{mean}}}{bracket}{interval}"
        named = cells.reset_index()
        for name in self.text.index.names:
            named[name] = named[name].map(escape_latex)
        style = named.rename(columns=escape_latex).style.hide(axis="index")
        alignment = "l" * self.text.index.nlevels + "r" * len(cells.columns)
        notes = "".join(f"% {' '.join(note.split())}\n" for note in self.notes)
        return notes + str(style.to_latex(column_format=alignment, hrules=True))

    def terminal(self, study: str) -> TerminalTable:
        """Return the formatted cells for a terminal, below the name of the study and the caption."""
        shown = TerminalTable(title=Text(escape_control_characters(f"{study} · {self.title}")))
        cells = self.text.reset_index()
        for place, name in enumerate(cells.columns):
            side: Literal["left", "right"] = "left" if place < self.text.index.nlevels else "right"
            shown.add_column(Text(escape_control_characters(name)), justify=side, overflow="fold")
        for row in cells.itertuples(index=False):
            shown.add_row(*(Text(escape_control_characters(str(cell))) for cell in row))
        return shown


class TableColumns:
    """The columns of a table that is being built."""

    def __init__(self) -> None:
        self.text: dict[str, list[str]] = {}
        self.values: dict[str, list[float | None]] = {}
        self.signs: dict[str, int] = {}

    def add(
        self,
        name: str,
        estimates: Iterable[Estimate | None],
        *,
        digits: int,
        scale: float = 1,
        write: Callable[..., str] | None = None,
    ) -> None:
        """Add a column with a cell for each estimate, formatted by `write` or else `format_estimate`."""
        cells = [*estimates]
        self.text[name] = [(write or format_estimate)(cell, digits=digits, scale=scale) for cell in cells]
        shown = [cell if cell is not None and isfinite(cell.mean) else None for cell in cells]
        self.values[name] = [None if cell is None else scale * cell.mean for cell in shown]
        intervals = [cell.interval if cell else None for cell in shown]
        if any(intervals):
            for end, side in enumerate(("low", "high")):
                self.values[f"{name} {side}"] = [ends and scale * ends[end] for ends in intervals]

    def add_metric(
        self, metric: registry.Metric, estimates: Iterable[Estimate | None], suffix: str = "", **options: Any
    ) -> None:
        """Add a column with values of a metric in its unit; a suffix is appended to its heading."""
        name = metric.heading + suffix
        self.signs |= {name: metric.sign} if metric.direction and not suffix else {}
        self.add(name, estimates, digits=metric.digits, scale=metric.scale, **options)

    def table(
        self,
        name: str,
        title: str,
        labels: Mapping[str, Sequence[str]],
        notes: Sequence[str],
        csv_labels: Mapping[str, Sequence[str]] | None = None,
    ) -> Table:
        """Return the table; `labels` are the texts that name its rows, by heading."""
        text = pd.DataFrame({**labels, **self.text}).set_index([*labels])
        stored = {**(csv_labels or labels), **self.values}
        exact = {name: pd.Series(cells, dtype=object) for name, cells in stored.items()}  # whole numbers
        values = pd.DataFrame(exact).set_index([*labels])
        return Table(name, title, text, values, notes, self.signs)


def markdown(text: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """Return a GitHub-flavoured Markdown table of formatted cells, followed by the notes.

    The levels of the index are aligned to the left, and the columns to the right.
    """
    cells = text.reset_index()
    rows = [
        [escape_markdown(name) for name in cells.columns],
        ["---"] * text.index.nlevels + ["---:"] * len(text.columns),
        *([escape_markdown(cell) for cell in row] for row in cells.itertuples(index=False)),
    ]
    lines = (f"| {' | '.join(row)} |\n" for row in rows)
    return "".join([*lines, *(f"\n{escape_markdown(note)}\n" for note in notes)])


def escape_latex(text: str) -> str:
    """Escape a text so that LaTeX prints it literally, on one line."""
    return " ".join(text.split()).translate(LATEX)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it literally, in one cell of a table."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def format_estimate(result: Estimate | None, *, digits: int, scale: float = 1, missing: str = MISSING) -> str:
    """Format a mean and its interval as "12.3 [11.0, 13.5]"; no interval if it has no width.

    The number of values is appended, as "(2 of 3)", if others are missing.
    """
    if result is None or not isfinite(result.mean):
        return missing
    text = _number(result.mean, digits=digits, scale=scale)
    if result.interval is not None:
        low, high = (_number(end, digits=digits, scale=scale) for end in result.interval)
        text += f" [{low}, {high}]"
    return text if result.total is None else f"{text} ({result.count} of {result.total})"


def point(value: float | None, scale: float = 1) -> Estimate | None:
    """Return a number without an interval, multiplied by the scale."""
    return None if value is None or not isfinite(value) else Estimate(scale * value, None, None, 1)


def mean_and_range(values: Sequence[float], *, digits: int) -> str:
    """Format the mean, and the lowest and the highest value if they differ: "97.0 (95.1–98.6)"."""
    mean, low, high = (f"{value:.{digits}f}" for value in (fmean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low}–{high})"


def _number(value: float, *, digits: int, scale: float = 1) -> str:
    return f"{round(value * scale, digits) + 0:,.{digits}f}"  # + 0 turns -0.0 into 0.0
