"""Starting the worker process of a run and recording how it ended. Imports no torch."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnlab.errors import INTERRUPTED as INTERRUPTED
from attnlab.errors import UserError
from attnlab.runs.directory import Run

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
"""Variables that would make a worker a rank of another training."""

Worker = subprocess.Popen[bytes]
Wait = Callable[[Worker], int]


def train(run: Run, *, wait: Wait = subprocess.Popen.wait, to_log: bool = False) -> int:
    """Train a run in a worker process and forward signals to it; returns 0, 1 or `INTERRUPTED`.

    Args:
        run: a run whose config.yaml exists.
        wait: waits until the worker ends; may terminate it.
        to_log: see `start`.
    """
    stopping = False
    with start(run, to_log=to_log) as worker:

        def forward(number: int, _: Any) -> None:
            nonlocal stopping
            stopping = True
            worker.send_signal(number)

        try:
            with handle_stop_signals(forward):
                wait(worker)
        finally:
            kill(worker)
    code = settle(run, worker.returncode, stopping=stopping)
    if worker.returncode < 0 and code == 1:
        print(f"attnlab: the run was {run.read_result()['error']}; see {run.directory}", file=sys.stderr)
    return code


@contextmanager
def handle_stop_signals(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM by this function inside the block."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def start(run: Run, environment: Mapping[str, str] | None = None, *, to_log: bool = False) -> Worker:
    """Start `python -m attnlab.cli.worker` on a run directory.

    Args:
        run: a run whose config.yaml exists.
        environment: variables that replace or extend those of this process.
        to_log: write the worker's output to train.log instead of the terminal.
    """
    command = [sys.executable, "-m", "attnlab.cli.worker", str(run.directory)]
    # In its own session: the terminal's Ctrl-C reaches this process only, which forwards it.
    options: dict[str, Any] = {
        "env": {**worker_environment(), **(environment or {})},
        "start_new_session": True,
    }
    if not to_log:
        return subprocess.Popen(command, **options)
    with run.log.open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, **options
        )


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker process.

    It is that of this process without `TORCH_DISTRIBUTED`, and with

    - `PYTHONSAFEPATH`, since `python -m` would put the current folder first on the module search path, where
      a data file such as `torch.py` would replace a package;
    - malloc thresholds that keep glibc from returning the memory of a training step to the system;
    - `ATTNLAB_PARENT`, the id of this process, for `die_with_parent`.
    """
    environment = {key: value for key, value in os.environ.items() if key not in TORCH_DISTRIBUTED}
    for threshold in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"):
        environment.setdefault(threshold, str(2**32))
    return {**environment, "PYTHONSAFEPATH": "1", "ATTNLAB_PARENT": str(os.getpid())}


def import_from_current_folder() -> None:
    """Append the current folder to the module search path, for custom classes that a configuration names.

    Last, so that files in a data folder never replace installed packages.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)


def kill(worker: Worker) -> None:
    """Kill a worker and the processes that it started: data loaders and ranks."""
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def settle(run: Run, code: int, *, stopping: bool) -> int:
    """Update result.json if the worker ended before it could do so; returns the exit code of the run.

    Args:
        run: the worker's run.
        code: the worker's return code, negative if a signal ended it.
        stopping: whether a stop signal was sent to it.
    """
    try:
        with run.lock():
            return _settle(run, code, stopping=stopping)
    except UserError:
        return 1  # another process works on the run and will record its status


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
    """Ask Linux to send SIGTERM to this process when its parent process ends for any reason."""
    if sys.platform != "linux":
        return
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    # Removed: ranks and data loaders inherit the environment, but have another parent.
    parent = os.environ.pop("ATTNLAB_PARENT", None)
    if parent is not None and int(parent) != os.getppid():  # the parent ended before the call above
        os.kill(os.getpid(), signal.SIGTERM)
