"""Locks between processes, also of several machines: of a run directory, and of single files."""

import errno
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnlab.errors import ORPHAN_TIMEOUT, InUseError

STOPPING_TIMEOUT = 2 * ORPHAN_TIMEOUT  # Seconds to wait for a process that holds the lock and is stopping


@contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory; the operating system releases it when the process ends.

    It is a POSIX lock, which NFS passes on to its server: it also excludes processes of other machines.

    A holder whose parent process is gone is stopping (see `attnlab.jobs.worker_process`): wait for its end,
    at most `STOPPING_TIMEOUT` seconds.
    """
    # Neither flock nor the package filelock, which uses it: forked data loaders would still hold the lock
    # after this process is killed
    deadline = time.monotonic() + STOPPING_TIMEOUT
    with (directory / "lock").open("a+", encoding="utf-8") as file:
        while True:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    print(
                        f"attnlab: {directory} cannot be locked ({error.strerror}): a second process that "
                        "trains this run would not be noticed",
                        file=sys.stderr,
                    )
                    break
                file.seek(0)
                holder = file.read().split()
                if not _is_stopping(*holder) or time.monotonic() > deadline:
                    raise InUseError(_in_use(directory, *holder)) from None
                time.sleep(0.1)
        with suppress(OSError):  # no space left: the lock is held, only its holder is not recorded
            file.truncate(0)
            os.write(file.fileno(), f"{socket.gethostname()} {os.getpid()} {os.getppid()}\n".encode())
        yield


@contextmanager
def lock_file(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file inside the block; without `wait`, yield False if another process holds it."""
    with path.open("a") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except (BlockingIOError, PermissionError):
            yield False
        else:
            yield True


def _in_use(directory: Path, host: str = "another machine", pid: str = "?", *_: str) -> str:
    return f"{directory} is in use by process {pid} on {host}: wait until it ends, or stop it"


def _is_stopping(host: str = "", pid: str = "", parent: str = "") -> bool:
    """Return whether the parent of the lock's holder has ended, so that Linux stops the holder."""
    if host != socket.gethostname() or not sys.platform.startswith("linux"):
        return False
    try:
        current_parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return True  # the holder ended after the lock was tried
    return current_parent != parent
