"""Folders of files that are computed once from data, and are then read by all processes and later runs.

A folder is named by the digest of its key, which contains everything that the files depend on. It appears
when all files are complete, and is never changed.
"""

import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from attnlab import __version__
from attnlab.errors import UserError
from attnlab.files.lock import lock_file
from attnlab.files.writing import MACHINE, no_space_left

log = logging.getLogger(__name__)

RECORD = "record.json"
PROGRESS_SECONDS = 10.0

Item = TypeVar("Item")
Key = Mapping[str, Any]  # Plain values, whose digest is the name of a folder


class Cached(NamedTuple):
    """A complete folder of the cache."""

    folder: Path
    values: dict[str, Any]  # plain values that the writer returned

    @property
    def digest(self) -> str:
        """Digest of the key."""
        return self.folder.name


def find(root: Path, key: Key) -> Cached | None:
    """Return the folder of a key, and log the messages of its writer; None if it is missing or damaged."""
    folder = _folder(root, key)
    record = _read(folder)
    if record is None:
        return None
    for name, level, message in record["messages"]:
        logging.getLogger(name).log(level, "%s", message)
    return Cached(folder, record["values"])


def find_or_write(root: Path, key: Key, write: Callable[[Path], dict[str, Any]], *, noun: str) -> Cached:
    """Return the folder of a key; if it is missing, one process writes it while others wait.

    Args:
        key: everything that the files depend on. The version of attnlab is added.
        write: writes the files into an empty folder, and returns plain values to keep. What `attnlab.data`
            logs meanwhile is kept too, and logged by every process that reads the folder.
        noun: the files in messages, such as "the token ids of the training data".
    """
    cached = find(root, key)
    if cached is not None:
        return cached
    folder = _folder(root, key)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.with_name(f".{folder.name}.lock"), noun):
            if _read(folder) is None:
                _write(folder, write, noun)
    except OSError as error:
        problem = (
            f"no space left on the disk of {root} for {noun}. Free space there"
            if no_space_left(error)
            else f"{noun} cannot be written to {root} ({error.strerror}). Make it writable"
        )
        raise UserError(
            f"data.cache: {problem}, or set data.cache to another folder, or null to keep all pairs in memory"
        ) from error
    cached = find(root, key)
    assert cached is not None
    return cached


@contextmanager
def deferred_messages() -> Iterator[list[logging.LogRecord]]:
    """Collect what `attnlab.data` logs in the block, and log it at the end."""
    logger, recorder = logging.getLogger("attnlab.data"), BufferingHandler(sys.maxsize)
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers
    logger.handlers = [recorder]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield recorder.buffer
    finally:
        logger.handlers = handlers
        logger.setLevel(level)
        logger.propagate = propagate
        for record in recorder.buffer:
            logging.getLogger(record.name).handle(record)


def with_progress(items: Iterable[Item], noun: str, *, size: Callable[[Item], int]) -> Iterator[Item]:
    """Yield items, and log every 10 seconds how many of what they contain were processed."""
    start = last = time.monotonic()
    count = 0
    for item in items:
        yield item
        count += size(item)
        now = time.monotonic()
        if now - last > PROGRESS_SECONDS:
            log.info("%s %s, %s per second", f"{count:,}", noun, f"{count / (now - start):,.0f}")
            last = now


@contextmanager
def _lock(path: Path, noun: str) -> Iterator[None]:
    with lock_file(path, wait=False) as is_held:
        if is_held:
            yield
            return
    log.info("waiting for another process, which writes %s", noun)
    with lock_file(path):
        yield


def _folder(root: Path, key: Key) -> Path:
    content = json.dumps({**key, "attnlab": __version__}, sort_keys=True)
    return root / "corpora" / hashlib.sha256(content.encode()).hexdigest()[:32]


def _write(folder: Path, write: Callable[[Path], dict[str, Any]], noun: str) -> None:
    """Write a folder under a temporary name, and rename it. The lock of the folder is held."""
    for unfinished in folder.parent.glob(f".{folder.name}.*.tmp"):  # of a killed process
        shutil.rmtree(unfinished)
    if folder.exists():
        log.warning("%s is damaged: writing %s again", folder, noun)
        shutil.rmtree(folder)
    temporary = folder.with_name(f".{folder.name}.{MACHINE}-{os.getpid()}.tmp")
    temporary.mkdir()
    try:
        with deferred_messages() as messages:
            values = write(temporary)
            recorded = [(record.name, record.levelno, record.getMessage()) for record in messages]
            messages.clear()  # `find` logs them
        sizes = {path.name: path.stat().st_size for path in temporary.iterdir()}
        record = {"sizes": sizes, "messages": recorded, "values": values}
        (temporary / RECORD).write_text(json.dumps(record), encoding="utf-8")
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _read(folder: Path) -> dict[str, Any] | None:
    """Return the record of a complete folder; None if there is none, or a file is missing or too short."""
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        complete = all((folder / name).stat().st_size == size for name, size in record["sizes"].items())
    except (OSError, ValueError, KeyError):
        return None
    return record if complete else None
