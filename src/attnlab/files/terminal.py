"""Text for standard output, which may be a terminal, a pipe or a file."""

from __future__ import annotations

import errno
import io
import os
import sys
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DIRECTIONS = {*map(chr, (*range(0x202A, 0x202F), *range(0x2066, 0x206A)))}
"""Characters that change the direction of the text after them."""

UNLIMITED = 10_000  # Width, in characters, of tables that are not cut


class StandardStream(io.BufferedWriter):
    """Standard output (1) or standard error (2) that may be lost: a closed terminal never ends a command.

    Args:
        number: file descriptor.
        required: raise the error of a write, with the name of the file, unless the terminal was closed.

    Attributes:
        lost: the error of the last write that was dropped.
    """

    def __init__(self, number: int, *, required: bool) -> None:
        super().__init__(io.FileIO(number, "w", closefd=False))
        self.required = required
        self.lost: OSError | None = None

    # The raw stream stays as it is: if Ctrl-C interrupted a method of its own, the buffer would write twice

    def write(self, data: Any) -> int:
        """Write bytes, or drop them if that fails; returns their number."""
        try:
            return super().write(data)
        except OSError as error:
            self._drop(error)
            return len(data)

    def flush(self) -> None:
        """Write what is buffered, or try again at the next flush if that fails."""
        try:
            super().flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        name = "standard output"
        with suppress(OSError):
            target = str(Path(f"/proc/self/fd/{self.fileno()}").readlink())
            name += f" ({target})" if target.startswith("/") else ""
        described = OSError(error.errno, error.strerror, name)
        if self.required and error.errno != errno.EIO:
            raise described from None
        self.lost = described


def replace_standard_streams(*, required: bool) -> None:
    """Let standard error, and standard output unless it is required, drop what cannot be written."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is not None:  # None if it was closed before the start
            wrapper = io.TextIOWrapper(
                StandardStream(number, required=required and number == 1),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=number == 2 or os.isatty(number),
            )
            setattr(sys, name, wrapper)


def escape_control_characters(text: str) -> str:
    r"""Escape control characters (`\x1b`), which a terminal would execute, and characters of direction."""
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in ("Cc", "Cs") or character in DIRECTIONS
        else character
        for character in text
    )


def print_line(text: str, style: str | None = None, *, console: Console | None = None) -> None:
    """Print one line as it is: without wrapping or markup, and with control characters escaped."""
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
    """Print a table with all of its words, wider than the terminal if they do not fit."""
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
