"""Starting the worker of a run, and settling how it ended. Imports no torch."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from attnlab.errors import UserError
from attnlab.runs.directory import Run

INTERRUPTED = 75
"""The exit code of what was stopped in good order, and goes on when asked again."""

TORCH_DISTRIBUTED = (
    "LOCAL_RANK",
    "RANK",
    "NODE_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_NTASKS",
)
"""What must not leak into a worker, which would take itself for a rank of somebody else's training."""

Worker = subprocess.Popen[bytes]
Wait = Callable[[Worker], int]


def train(run: Run, *, wait: Wait = subprocess.Popen.wait, to_log: bool = False) -> int:
    """Train a run in a worker, handing signals on to it; returns its exit code: 0, 1 or `INTERRUPTED`.

    Args:
        run: its config.yaml is written.
        wait: waits for the worker to end; may ask it to stop.
        to_log: as in `start`.
    """
    stopping = False
    with start(run, to_log=to_log) as worker:

        def hand_on(number: int, _: Any) -> None:
            nonlocal stopping
            stopping = True
            worker.send_signal(number)

        before = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            wait(worker)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            kill(worker)
    code = settle(run, worker.returncode, stopping=stopping)
    if worker.returncode < 0 and code == 1:
        print(f"attnlab: the run was {run.read_result()['error']}; see {run.directory}", file=sys.stderr)
    return code


def start(run: Run, environment: Mapping[str, str] | None = None, *, to_log: bool = False) -> Worker:
    """Start `python -m attnlab.cli.worker` on a run directory.

    Args:
        run: its config.yaml is written.
        environment: what the worker finds in its environment over what this process has.
        to_log: write what the worker prints to train.log, and nothing to the terminal.
    """
    command = [sys.executable, "-m", "attnlab.cli.worker", str(run.directory)]
    # A session of its own: the terminal's Ctrl-C reaches this process alone, which hands it on in good order.
    options: dict[str, Any] = {
        "env": {**own_environment(), **(environment or {})},
        "start_new_session": True,
    }
    if not to_log:
        return subprocess.Popen(command, **options)
    with run.log.open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **options
        )


def own_environment() -> dict[str, str]:
    """What a process of ours finds in its environment: all but another training's, and whose child it is."""
    inherited = {key: value for key, value in os.environ.items() if key not in TORCH_DISTRIBUTED}
    # glibc would hand a step's memory back to the system and fetch it again, page by page, at the next step.
    for threshold in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        inherited.setdefault(threshold, str(2**32))
    return {**inherited, "ATTNLAB_PARENT": str(os.getpid())}


def kill(worker: Worker) -> None:
    """End a worker, and whatever it left running: loaders, ranks."""
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def settle(run: Run, code: int, *, stopping: bool) -> int:
    """Bring result.json up to date after a worker that could not do so itself; returns the exit code.

    Args:
        run: what the worker trained.
        code: the worker's return code, negative where a signal ended it.
        stopping: whether it had been asked to stop.
    """
    try:
        with run.lock():
            return _settle(run, code, stopping=stopping)
    except UserError:
        return 1  # another process works on it, and says how it stands


def _settle(run: Run, code: int, *, stopping: bool) -> int:
    status = run.read_result().get("status")
    if code in (0, INTERRUPTED) or status == "finished":
        return code if code == INTERRUPTED else 0
    if stopping and (code < 0 or status != "failed"):
        run.write_result("interrupted")
        return INTERRUPTED
    if code < 0:
        run.write_result("failed", error=f"killed by {signal.Signals(-code).name}")
    elif status != "failed":
        run.write_result("failed", error=f"ended with exit code {code}, see {run.log}")
    return 1


def die_with_parent() -> None:
    """Ask Linux to end this process when the one that started it is gone, however it went."""
    if sys.platform != "linux":
        return
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    # Not handed on: the ranks and loaders of a run have a parent of their own.
    parent = os.environ.pop("ATTNLAB_PARENT", None)
    if parent is not None and int(parent) != os.getppid():  # it went before it could be asked
        os.kill(os.getpid(), signal.SIGTERM)
