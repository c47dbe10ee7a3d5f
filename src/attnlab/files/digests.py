"""Digests of data files, and which files changed since a run recorded them. Imports no torch."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def file_digest(path: Path) -> str:
    """Return the SHA-256 of the content of a file, computed once as long as the file does not change."""
    path = path.expanduser()
    status = path.stat()
    return _digest_of(path.absolute(), status.st_mtime_ns, status.st_size)


def changed_files(recorded: Mapping[str, Any] | None) -> list[str]:
    """Return the files whose content is no longer the recorded one. Missing files are left out."""
    if recorded is None:
        return []
    return [name for name, digest in recorded["files"].items() if current_digest(name) not in (None, digest)]


def current_digest(name: str) -> str | None:
    """Return the digest of a regular file; None if it cannot be read."""
    try:
        path = Path(name).expanduser()
        return file_digest(path) if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


@cache
def _digest_of(path: Path, modified: int, size: int) -> str:
    """Return the digest of a file, computed once for all runs of a sweep that read it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
