"""The lines of standard input."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from attnlab.errors import UserError
from attnlab.files.printable import printable
from attnlab.plotting.text import truncate

PROMPT = "> "
MAX_PROBLEM = 300
"""Maximum number of characters that describe why a line cannot be used."""


class Line(NamedTuple):
    """A line of the input: its number from 1, and its text without the newline."""

    number: int
    text: bytes

    def decode(self) -> str:
        """Return the text of the line.

        Raises:
            UserError: if it is empty or is not valid UTF-8.
        """
        try:
            text = self.text.decode()
        except UnicodeDecodeError as error:
            raise UserError(
                f"byte {error.start + 1} (0x{self.text[error.start]:02x}) is not valid UTF-8: convert the "
                "input, for example with iconv -f latin1 -t utf-8"
            ) from None
        if not text.strip():
            raise UserError("it is empty; every line must contain a sentence")
        return text

    def problem(self, error: UserError) -> UserError:
        """Return the error with the number of the line, shortened and without control characters."""
        text = truncate(printable(str(error)), MAX_PROBLEM)
        return UserError(f"line {self.number} of standard input: {text}")


def read_lines(stream: BinaryIO, *, interactive: bool) -> Iterator[Line]:
    """Yield the lines of standard input, without a byte order mark.

    In an interactive session, print a prompt to standard error before each line, and omit empty lines.
    """
    for number, line in enumerate(_with_prompt(stream) if interactive else stream, start=1):
        text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b"\r\n")
        if text.strip() or not interactive:
            yield Line(number, text)


def _with_prompt(stream: BinaryIO) -> Iterable[bytes]:
    while True:
        try:
            print(PROMPT, end="", file=sys.stderr, flush=True)
            line = stream.readline()
        except KeyboardInterrupt:
            print(file=sys.stderr)  # the message follows on its own line
            raise
        if not line:
            print(file=sys.stderr)
            return
        yield line
