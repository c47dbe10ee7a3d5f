"""Lines and tables on standard output, which may be a terminal, a pipe or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.files.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

UNLIMITED = 10_000


def print_line(text: str, style: str | None = None) -> None:
    """Print one line without wrapping it, with control characters escaped."""
    from rich.console import Console

    Console().print(printable(text), style=style, soft_wrap=True, highlight=False, markup=False, emoji=False)


def print_table(table: Table) -> None:
    """Print a table with all of its words: wider than the terminal if it is too narrow for the longest ones.

    In a pipe or file, each row is one line without trailing blanks.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.measure import Measurement

    for column in table.columns:
        cells = (column.header, *column.cells)
        column.min_width = max(cell_len(word) for cell in cells for word in str(cell).split() or [""])
    console = Console(width=UNLIMITED)
    width = Measurement.get(console, console.options, table)
    if console.is_terminal:
        Console(width=max(Console().width, width.minimum)).print(table)
        return
    console = Console(width=width.maximum)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        print(line.rstrip())
