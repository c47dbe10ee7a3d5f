"""The lines of standard input, each of which succeeds or fails alone."""

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, TypeVar

from attnlab.errors import UserError
from attnlab.files.terminal import escape_control_characters

PROMPT = "> "
MAX_REASON = 300  # Maximum number of characters that describe why a line cannot be used

Read = TypeVar("Read")
Result = TypeVar("Result")


class Line(NamedTuple):
    """A line of the input: its number from 1, and its text without the newline."""

    number: int
    text: bytes

    def decode(self) -> str:
        """Return the text of the line; raise `UserError` if it is empty or is not valid UTF-8."""
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


def standard_input(expected: str) -> BinaryIO:
    """Return standard input as a binary stream; raise `UserError` if it is closed."""
    if sys.stdin is None:
        raise UserError(f"Standard input is closed: give {expected}")
    return sys.stdin.buffer


def read_lines(stream: BinaryIO, *, interactive: bool) -> Iterator[Line]:
    """Yield the lines of standard input, without a byte order mark.

    In an interactive session, print a prompt to standard error before each line, and omit empty lines.
    """
    for number, line in enumerate(_with_prompt(stream) if interactive else stream, start=1):
        text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip(b"\r\n")
        if text.strip() or not interactive:
            yield Line(number, text)


def process(
    lines: Sequence[Line],
    read: Callable[[int, str], Read],
    compute: Callable[[dict[int, Read]], Sequence[Result]],
    write: Callable[[int, Read | None, Result | None], object],
    *,
    strict: bool,
    allow_empty: bool = False,
) -> int:
    """Compute the results of all lines together, and write that of each line, in order.

    Args:
        read: parses a line, given its number and text; raises `UserError` at a bad one, which is reported on
            standard error.
        compute: returns one result per parsed line, given these by line number.
        write: prints a line's output, given its number, the parsed line and the result (None for a bad line).
        strict: raise the error of the first bad line, after the output of the lines before it.
        allow_empty: an empty line has no result and is not a bad line.

    Returns:
        The number of bad lines.
    """
    parsed: dict[int, Read] = {}
    problems: dict[int, str] = {}
    for line in lines:
        if allow_empty and not line.text.strip():
            continue
        try:
            parsed[line.number] = read(line.number, line.decode())
        except UserError as error:
            reason = escape_control_characters(str(error))
            if len(reason) > MAX_REASON:
                reason = f"{reason[: MAX_REASON - 1]}…"
            problems[line.number] = f"line {line.number} of standard input: {reason}"
    results = dict(zip(parsed, compute(parsed), strict=True)) if parsed else {}
    for number, _ in lines:
        if number in problems:
            if strict:
                raise UserError(problems[number])
            print(f"attnlab: {problems[number]}", file=sys.stderr)
        write(number, parsed.get(number), results.get(number))
    return len(problems)


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
