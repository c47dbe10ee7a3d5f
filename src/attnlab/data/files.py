"""Text files, read whole, with errors that name the file and the line."""

from __future__ import annotations

from pathlib import Path

from attnlab.errors import UserError


def read_text(path: str | Path) -> str:
    """The text of a UTF-8 file, with or without a byte order mark.

    Raises `UserError` where the file cannot be read, is empty, or is not UTF-8 text.
    """
    try:
        content = Path(path).expanduser().read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file: check the path") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): check the path") from error
    return decode(content, name=str(path))


def decode(content: bytes, *, name: str) -> str:
    """The text of a file's bytes; `name` is what errors call the file."""
    if not content.strip():
        raise UserError(f"{name}: the file is empty: fetch or write it again")
    zero = content.find(b"\0")
    if zero >= 0:  # valid in UTF-8, but in fact the mark of a binary file or of UTF-16
        raise UserError(f"{name}, line {_line(content, zero)}: a NUL byte: save the file as UTF-8 text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}, line {_line(content, error.start)}: not UTF-8 "
            f"(byte 0x{content[error.start]:02x}): save the file as UTF-8 text"
        ) from error


def split_lines(text: str) -> list[str]:
    r"""Lines as an editor numbers them: ended by `\n` or `\r\n`, and by nothing else.

    `str.splitlines` would also cut at U+2028 and its like, which stand inside sentences of real corpora.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def _line(content: bytes, position: int) -> int:
    """The number, from 1, of the line that holds a byte."""
    return content.count(b"\n", 0, position) + 1
