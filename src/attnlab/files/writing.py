"""Writing files so that readers never see a part of them."""

import errno
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRandom
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from attnlab.errors import UserError

TEMPORARY = ".*.tmp"
"""Pattern of the temporary files that a killed process may leave next to the files that it was writing."""

MACHINE = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:4]
"""Part of the names of temporary files, since process ids of several machines can be equal."""


def no_space_left(error: BaseException | None) -> bool:
    """Return whether an exception was caused by a full disk, an exceeded quota or a limit on file sizes."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    return error is not None and (no_space_left(error.__cause__) or no_space_left(error.__context__))


@contextmanager
def name_full_disk(path: Path) -> Iterator[None]:
    """Add the name of a file to the error of a full disk: those of writes have none."""
    try:
        yield
    except Exception as error:
        if no_space_left(error) and str(path) not in str(error):
            number = (error.errno if isinstance(error, OSError) else None) or errno.ENOSPC
            raise OSError(number, os.strerror(number), str(path)) from error
        raise


@contextmanager
def open_atomically(path: Path) -> Iterator[BufferedRandom]:
    """Open a file for writing and reading that replaces `path` when the block ends.

    A reader sees the old file or the complete new one. The content is flushed to disk before the rename. If
    the block raises, `path` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        with name_full_disk(path), temporary.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a text file (UTF-8) or a binary file; see `open_atomically`."""
    with open_atomically(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON; see `open_atomically`."""
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def check_writable(path: Path) -> None:
    """Raise `UserError` if `open_atomically` cannot write a file; nothing is created."""
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a file: give the name of a file")
        _temporary(path).exists()  # OSError if the name is too long
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def _temporary(path: Path) -> Path:
    """Return a name that no other process has, not even one of another machine with the same id."""
    return path.with_name(f".{path.name}.{MACHINE}-{os.getpid()}.tmp")
