"""Processes that end with the process that started them, whatever they are doing. Imports no torch.

A signal is not enough: SIGTERM only sets a flag in a training process, and never arrives in one that hangs
in native code. A small process therefore waits for the end of the parent, and kills the process group, which
includes ranks and data loaders.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from attnlab.errors import ORPHAN_TIMEOUT

PARENT_PIPE = "ATTNLAB_PARENT_PIPE"
"""Environment variable with the file descriptor of a pipe that the parent process keeps open."""

Process = subprocess.Popen[bytes]


def start_supervised(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> Process:
    """Start a command in a session of its own; it ends with this process if it uses `end_with_parent`.

    The terminal's Ctrl-C does not reach it: this process forwards signals. When it ends, `kill` its group.
    """
    pipe = _pipe_of(os.getpid())
    return subprocess.Popen(
        command,
        env={**environment, PARENT_PIPE: str(pipe)},
        pass_fds=(pipe,),
        start_new_session=True,
        **options,
    )


@cache
def _pipe_of(pid: int) -> int:
    """Return the read end of a pipe whose write end closes when this process, `pid`, ends."""
    return os.pipe()[0]


def kill(process: Process) -> None:
    """Kill a process of `start_supervised` and all processes of its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def end_with_parent() -> Iterator[None]:
    """End this process and its group if the process that started it ends inside the block.

    It gets SIGTERM, and SIGKILL after `ORPHAN_TIMEOUT`. Does nothing in a process that was not started by
    `start_supervised`. Must be entered before any thread starts.
    """
    pipe = os.environ.pop(PARENT_PIPE, None)  # removed: ranks inherit the environment, but not the pipe
    if pipe is None:
        yield
        return
    process = os.getpid()
    watcher = os.fork()
    if watcher == 0:
        try:
            _kill_orphan(process, int(pipe))
        finally:
            os._exit(1)
    os.close(int(pipe))
    try:
        yield
    finally:
        os.kill(watcher, signal.SIGKILL)
        os.waitpid(watcher, 0)


def _kill_orphan(process: int, pipe: int) -> None:
    """Wait for the end of the parent of `process`, then end the process and its group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.read(pipe, 1)  # returns when the write end closes
    deadline = time.monotonic() + ORPHAN_TIMEOUT
    if os.getppid() == process:
        os.kill(process, signal.SIGTERM)
    while os.getppid() == process and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(0, signal.SIGKILL)
