"""Reading of text files, plain or compressed by gzip, with errors that name the file and the line."""

import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path

from attnlab.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"
"""First bytes of a gzip file."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""A lone surrogate: valid in JSON escapes, but not encodable as UTF-8 and rejected by the tokenizers."""

SIZE_LIMIT = "ATTNLAB_MAX_DECOMPRESSED_BYTES"
"""Environment variable: maximum size of a file after decompression, in bytes."""
DEFAULT_SIZE_LIMIT = 2 * 1024**3
"""The default: this, or 20 times the compressed size if that is more."""
BLOCK = 1 << 20
"""Bytes that are read at a time."""


def read_text(path: str | Path, *, setting: str | None = None) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark, plain or compressed by gzip.

    Args:
        setting: the option that names the file, such as "data.path", for error messages.

    Raises:
        UserError: if the file cannot be read, is too large, is empty, or is not UTF-8 text.
    """
    with _report_errors(path, setting) as name:
        return decode(b"".join(_read_blocks(path, name)), name=str(path))


def read_lines(path: str | Path, *, setting: str | None = None) -> Iterator[str]:
    """Yield the lines of a text file, those of `split_lines(read_text(path))`, in constant memory.

    A file whose first MiB has no line feed is read at once.

    Raises:
        UserError: as `read_text`; the lines before a broken one are yielded first, unless the file is small.
    """
    with _report_errors(path, setting) as name:
        blocks = _read_blocks(path, name)
        first, second = next(blocks, b""), next(blocks, None)
        if second is None or b"\n" not in first:
            yield from split_lines(decode(b"".join([first, second or b"", *blocks]), name=str(path)))
            return
        number, rest, is_blank = 1, b"", True
        for block in chain([first, second], blocks, [None]):
            end = 0 if block is None else block.rfind(b"\n") + 1
            if block is not None and end == 0:
                rest += block
                continue
            content, rest = (rest, b"") if block is None else (rest + block[:end], block[end:])
            is_blank = is_blank and not content.strip()
            text = decode(content, name=str(path), first_line=number) if content.strip() else content.decode()
            lines = text.split("\n")
            yield from (line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1]))
            number += content.count(b"\n")
        if is_blank:
            decode(b"", name=str(path))


@contextmanager
def _report_errors(path: str | Path, setting: str | None) -> Iterator[str]:
    """Raise the errors of reading a file as `UserError`; yields the name of the file for messages."""
    name = str(path) if setting is None else f"{setting}: {path}"
    try:
        yield name
    except MemoryError as error:
        raise UserError(f"{name} does not fit into memory. Use a smaller file or a larger machine") from error
    except FileNotFoundError as error:
        raise UserError(f"{name} does not exist. Check the path") from error
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}). Check the path") from error
    except (RuntimeError, ValueError) as error:  # an unknown user after "~", or a NUL character
        raise UserError(f"{name!r} is not a valid path ({error}). Check the path") from error


def _read_blocks(path: str | Path, name: str) -> Iterator[bytes]:
    """Yield the content of a file, decompressed, in blocks of at least 1 MiB but for the last one."""
    location = Path(path).expanduser()
    check_regular_file(location, name=name)
    with location.open("rb") as file:
        if file.peek(2)[:2] != GZIP_MAGIC:
            if str(path).endswith(".gz") and file.peek(1):
                raise UserError(
                    f"{path}: the file is not compressed by gzip. Rename it without .gz or compress it"
                )
            yield from iter(partial(file.read, BLOCK), b"")
            return
        limit = _size_limit(location)
        with gzip.open(file) as decompressed:
            size = 0
            while True:
                try:
                    block = decompressed.read(min(BLOCK, limit + 1 - size))
                except (OSError, EOFError, zlib.error) as error:
                    raise UserError(
                        f"{path}: the gzip file is truncated or damaged ({error}). Download or create it "
                        "again"
                    ) from error
                size += len(block)
                if size > limit:
                    raise UserError(
                        f"{path} has more than {limit:,} bytes after decompression. Set the environment "
                        f"variable {SIZE_LIMIT} to a larger number if that is right"
                    )
                if not block:
                    return
                yield block


def check_regular_file(path: Path, *, name: str) -> None:
    """Raise `UserError` at a pipe or a device, which may never end; `name` describes it in the message.

    Raises:
        OSError: if it does not exist.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{name} is not a regular file, but a pipe or a device. Write its contents to a file")


def decode(content: bytes, *, name: str, first_line: int = 1) -> str:
    """Decode the content of a text file, or the part of it from a line on; `name` is for error messages."""
    if not content.strip():
        raise UserError(f"{name}: the file is empty. Download or create it again")
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


def _size_limit(path: Path) -> int:
    """Return the largest size of a file after decompression: text is compressed to a tenth at most."""
    setting = os.environ.get(SIZE_LIMIT)
    if setting is None:
        return max(DEFAULT_SIZE_LIMIT, 20 * path.stat().st_size)
    if not setting.isdecimal():
        raise UserError(f"{SIZE_LIMIT}={setting}: must be a whole number of bytes")
    return int(setting)


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
