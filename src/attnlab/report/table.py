"""A table, with conversions to CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """Heading of a column, and whether its cells are numbers."""

    name: str
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """Content of one cell.

    Attributes:
        text: formatted for display.
        value: unrounded, in the unit of the column, for sorting and CSV; None if the cell is empty.
        interval: ends of the 95 % interval of the value.
    """

    text: str
    value: str | float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Table:
    """A table, with conversions to CSV, Markdown and LaTeX.

    Attributes:
        name: stem of its files.
        title: caption.
        columns: headings.
        rows: one cell per column each.
        notes: remarks printed below the table.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def csv(self) -> str:
        """Return CSV with unrounded values; the ends of intervals are separate columns."""
        indices = range(len(self.columns))
        has_interval = [any(row[index].interval for row in self.rows) for index in indices]
        header: list[str] = []
        for column, interval in zip(self.columns, has_interval, strict=True):
            header += [column.name, *(f"{column.name} {end}" for end in ("low", "high") if interval)]
        lines: list[list[str | float | None]] = []
        for row in self.rows:
            lines.append([])
            for cell, interval in zip(row, has_interval, strict=True):
                lines[-1] += [cell.value, *((cell.interval or (None, None)) if interval else ())]
        return format_csv([header, *lines])

    def markdown(self) -> str:
        """Return a GitHub-flavoured Markdown table, followed by the notes."""
        rules = ["---:" if column.numeric else "---" for column in self.columns]
        lines = [
            _markdown_line(escape_markdown(column.name) for column in self.columns),
            _markdown_line(rules),
            *(_markdown_line(escape_markdown(cell.text) for cell in row) for row in self.rows),
        ]
        notes = "".join(f"\n{escape_markdown(note)}\n" for note in self.notes)
        return "".join(f"{line}\n" for line in lines) + notes

    def latex(self) -> str:
        r"""Return a LaTeX tabular that needs `\usepackage{booktabs}`; notes are comments."""
        alignment = "".join("r" if column.numeric else "l" for column in self.columns)
        lines = [
            *(f"% {' '.join(note.split())}" for note in self.notes),
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _latex_line(column.name for column in self.columns),
            r"\midrule",
            *(_latex_line(cell.text for cell in row) for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "".join(f"{line}\n" for line in lines)


LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "_": r"\_",
        "%": r"\%",
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


def escape_latex(text: str) -> str:
    """Escape a text so that LaTeX prints it literally, on one line."""
    return " ".join(text.split()).translate(LATEX)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it literally, in one cell of a table."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def format_csv(rows: Iterable[Iterable[str | float | None]]) -> str:
    """Return CSV; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_line(texts: Iterable[str]) -> str:
    return " & ".join(escape_latex(text) for text in texts) + r" \\"
