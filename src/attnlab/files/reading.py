"""Reading of text files, plain or compressed by gzip, with errors that name the file and the line."""

import gzip
import io
import os
import re
import stat
import zlib
from pathlib import Path

from attnlab.errors import UserError

GZIP_MAGIC = b"\x1f\x8b"
"""First bytes of a gzip file."""

SURROGATE = re.compile("[\ud800-\udfff]")
"""A lone surrogate: valid in JSON escapes, but not encodable as UTF-8 and rejected by the tokenizers."""

SIZE_LIMIT = "ATTNLAB_MAX_DECOMPRESSED_BYTES"
"""Environment variable: maximum size of a file after decompression, in bytes."""
DEFAULT_SIZE_LIMIT = 2 * 1024**3


def read_text(path: str | Path, *, setting: str | None = None) -> str:
    """Return the text of a UTF-8 file, with or without a byte order mark, plain or compressed by gzip.

    Args:
        setting: the option that names the file, such as "data.path", for error messages.

    Raises:
        UserError: if the file cannot be read, is too large, is empty, or is not UTF-8 text.
    """
    name = str(path) if setting is None else f"{setting}: {path}"
    try:
        file = Path(path).expanduser()
        check_regular_file(file, name=name)
        content = file.read_bytes()
        if content.startswith(GZIP_MAGIC):
            content = _decompress(content, name=str(path))
        elif str(path).endswith(".gz"):
            raise UserError(
                f"{path}: the file is not compressed by gzip. Rename it without .gz or compress it"
            )
        return decode(content, name=str(path))
    except MemoryError as error:
        raise UserError(f"{name} does not fit into memory. Use a smaller file or a larger machine") from error
    except FileNotFoundError as error:
        raise UserError(f"{name} does not exist. Check the path") from error
    except OSError as error:
        raise UserError(f"{name} cannot be read ({error.strerror}). Check the path") from error
    except (RuntimeError, ValueError) as error:  # an unknown user after "~", or a NUL character
        raise UserError(f"{name!r} is not a valid path ({error}). Check the path") from error


def check_regular_file(path: Path, *, name: str) -> None:
    """Raise `UserError` at a pipe or a device, which may never end; `name` describes it in the message.

    Raises:
        OSError: if it does not exist.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UserError(f"{name} is not a regular file, but a pipe or a device. Write its contents to a file")


def decode(content: bytes, *, name: str) -> str:
    """Decode the content of a text file; `name` is the file name in error messages."""
    if not content.strip():
        raise UserError(f"{name}: the file is empty. Download or create it again")
    nul = content.find(b"\0")
    if nul >= 0:  # valid UTF-8, but in practice the file is binary or UTF-16
        raise UserError(f"{name}, line {_line_number(content, nul)}: NUL byte. Save the file as UTF-8 text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}, line {_line_number(content, error.start)}: not valid UTF-8 "
            f"(byte 0x{content[error.start]:02x}). Save the file as UTF-8 text"
        ) from error


def exists(path: str) -> bool:
    """Return whether a file or folder exists; False for a path that is not valid."""
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _decompress(content: bytes, *, name: str) -> bytes:
    setting = os.environ.get(SIZE_LIMIT, str(DEFAULT_SIZE_LIMIT))
    if not setting.isdecimal():
        raise UserError(f"{SIZE_LIMIT}={setting}: must be a whole number of bytes")
    limit = int(setting)
    try:
        with gzip.open(io.BytesIO(content)) as file:
            decompressed = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(
            f"{name}: the gzip file is truncated or damaged ({error}). Download or create it again"
        ) from error
    if len(decompressed) > limit:
        raise UserError(
            f"{name} has more than {limit:,} bytes after decompression. Set the environment variable "
            f"{SIZE_LIMIT} to a larger number if that is right"
        )
    return decompressed


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


def _line_number(content: bytes, offset: int) -> int:
    """Return the line number, from 1, of a byte."""
    return content.count(b"\n", 0, offset) + 1
