"""Text for standard output, which may be a terminal, a pipe or a file."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DIRECTIONS = {*map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))}
"""Characters that change the direction of the text after them."""

UNLIMITED = 10_000
"""Width, in characters, of tables that are not cut."""


def escape_control_characters(text: str) -> str:
    r"""Escape control characters (`\x1b`), which a terminal would execute, and characters of direction."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cs") or character in DIRECTIONS
        else character
        for character in text
    )


def print_line(text: str, style: str | None = None, *, console: Console | None = None) -> None:
    """Print one line as it is: without wrapping or markup, and with control characters escaped.

    Args:
        console: console to print to; by default that of standard output.
    """
    from rich.console import Console

    (console or Console()).print(
        escape_control_characters(text),
        style=style,
        soft_wrap=True,
        highlight=False,
        markup=False,
        emoji=False,
    )


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
