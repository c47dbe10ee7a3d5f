"""Reading of text files, plain or compressed by gzip, with errors that name the file and the line."""

import gzip
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from attnlab.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"  # First bytes of a gzip file

SURROGATE = re.compile("[\ud800-\udfff]")
"""A lone surrogate: valid in JSON escapes, but not encodable as UTF-8 and rejected by the tokenizers."""


def read_text(path: str | Path, *, setting: str | None = None) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark, plain or compressed by gzip.

    Args:
        setting: the option that names the file, such as "data.path", for error messages.
    """
    with _open(path, setting) as file:
        return decode(file.read(), name=str(path))


def read_lines(path: str | Path, *, setting: str | None = None) -> Iterator[str]:
    """Yield the lines of a text file, those of `split_lines(read_text(path))`, in constant memory."""
    with _open(path, setting) as file:
        is_blank = True
        for number, line in enumerate(file, start=1):
            text = _decode(line, name=str(path), first_line=number)
            is_blank = is_blank and not text.strip()
            if number == 1 and not text.endswith("\n"):  # the only line, or one with line breaks "\r"
                yield from split_lines(text)
            else:
                yield text.removesuffix("\n").removesuffix("\r")
        if is_blank:
            decode(b"", name=str(path))


@contextmanager
def _open(path: str | Path, setting: str | None) -> Iterator[BinaryIO]:
    """Open a file, decompressed, and raise the errors of reading it as `UserError`."""
    name = str(path) if setting is None else f"{setting}: {path}"
    try:
        location = Path(path).expanduser()
        mode = location.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # it may never end
            raise UserError(
                f"{name} is not a regular file, but a pipe or a device. Write its contents to a file"
            )
        with location.open("rb") as file:
            if file.peek(2)[:2] == GZIP_MAGIC:
                with gzip.open(file) as decompressed:
                    yield cast("BinaryIO", decompressed)
            elif str(path).endswith(".gz") and file.peek(1):
                raise UserError(
                    f"{path}: the file is not compressed by gzip. Rename it without .gz or compress it"
                )
            else:
                yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(
            f"{path}: the gzip file is truncated or damaged ({error}). Download or create it again"
        ) from error
    except FileNotFoundError as error:
        raise UserError(f"{name} does not exist. Check the path") from error
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}). Check the path") from error
    except (RuntimeError, ValueError) as error:  # an unknown user after "~", or a NUL character
        raise UserError(f"{name!r} is not a valid path ({error}). Check the path") from error


def decode(content: bytes, *, name: str) -> str:
    """Decode the content of a text file; `name` is for error messages."""
    if not content.strip():
        raise UserError(f"{name}: the file is empty. Download or create it again")
    return _decode(content, name=name, first_line=1)


def _decode(content: bytes, *, name: str, first_line: int) -> str:
    """Decode the part of a file that begins with a line."""
    nul = content.find(b"\0")
    if nul >= 0:  # valid UTF-8, but in practice the file is binary or UTF-16
        line = first_line + content.count(b"\n", 0, nul)
        raise UserError(f"{name}, line {line}: NUL byte. Save the file as UTF-8 text")
    try:
        return content.decode("utf-8-sig" if first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        raise UserError(
            f"{name}, line {line}: not valid UTF-8 "
            f"(byte 0x{content[error.start]:02x}). Save the file as UTF-8 text"
        ) from error


def exists(path: str) -> bool:
    """Return whether a file or folder exists; False for a path that is not valid."""
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def split_lines(text: str) -> list[str]:
    r"""Split a text at `\n` and `\r\n` only, or at `\r` if the text has no `\n` (classic Mac OS).

    `str.splitlines` also splits at U+2028 and other characters that occur inside sentences of real corpora.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n" if "\n" in text else "\r")]
    return lines if lines[-1] else lines[:-1]


def count_lines(noun: str, numbers: list[int]) -> str:
    """Return a number of lines with the first line numbers, such as "2 empty lines (4, 9)"."""
    shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"{len(numbers):,} {noun}{'s' * (len(numbers) > 1)} ({shown})"
