"""The lifecycle of a run's worker process, from its start to the record of its end. Imports no torch.

A worker ends with the process that started it, whatever it is doing. A signal is not enough: SIGTERM only
sets a flag in a training process, and never arrives in one that hangs in native code. A small process
therefore waits for the end of the parent, and kills the process group, which includes ranks and data loaders.
The program of the worker is `attnlab.jobs.worker`.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.config.options import CONFIG_DIR, user_folders
from attnlab.errors import INTERRUPTED, ORPHAN_TIMEOUT, InUseError
from attnlab.files.run_directory import Run
from attnlab.jobs.interruption import handle_signals

IN_USE = 69  # Exit code of a worker whose run directory is in use by another process
REFUSED = 2  # Exit code of a worker whose run cannot be trained with its settings and its data
STOP_TIMEOUT = 20.0  # Seconds after which a worker that was asked to stop is killed

TORCH_DISTRIBUTED = (
    *("LOCAL_RANK", "RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    *("MASTER_ADDR", "MASTER_PORT", "SLURM_NTASKS"),
)
"""Variables that would make a worker a rank of another training."""

PARENT_PIPE = "ATTNLAB_PARENT_PIPE"
"""Environment variable with the file descriptor of a pipe that the parent process keeps open."""

REPORT_INTERVAL = 0.1  # Seconds between two reports on a worker

Worker = subprocess.Popen[bytes]


@dataclass(frozen=True)
class ClusterTask:
    """The function that a job of a cluster runs: trains a run, or resumes it if the job starts again."""

    directory: Path  # run directory
    # current folder of the sweep, in which custom classes and data files are found
    folder: Path = field(default_factory=Path.cwd)
    # folders of options, beside which custom classes are found, and command of the sweep, for result.json
    variables: Mapping[str, str] = field(
        default_factory=lambda: {name: os.environ.get(name, "") for name in (CONFIG_DIR, "ATTNLAB_COMMAND")}
    )

    def __call__(self) -> int:
        """Train the run; returns the code of `record_exit`."""
        os.chdir(self.folder)
        os.environ.update(self.variables)
        run = Run(self.directory)
        finished = run.read_result().get("status") == "finished"
        return 0 if finished else train_in_worker(run, to_log=True)


def train_in_worker(run: Run, *, report: Callable[[], None] = lambda: None, to_log: bool = False) -> int:
    """Train a run in a worker process and forward signals to it; returns the code of `record_exit`.

    The worker is killed if it has not stopped `STOP_TIMEOUT` seconds after the first signal, and at a second
    SIGINT.
    """
    stopping = False
    with start_worker(run, to_log=to_log) as worker:
        kill_later = threading.Timer(STOP_TIMEOUT, kill, [worker])

        def forward(number: int, _: Any) -> None:
            nonlocal stopping
            if stopping and number == signal.SIGINT:
                kill(worker)
            elif not stopping:
                stopping = True
                worker.send_signal(number)
                kill_later.start()

        try:
            with handle_signals(forward):
                while worker.returncode is None:
                    with suppress(subprocess.TimeoutExpired):
                        worker.wait(REPORT_INTERVAL)  # in short steps: Ray interrupts no longer ones
                    report()
        except BaseException:  # submitit ends this process so shortly before the time limit of its job
            worker.terminate()
            with suppress(subprocess.TimeoutExpired):
                worker.wait(STOP_TIMEOUT)
            raise
        finally:
            kill_later.cancel()
            kill(worker)
    if int(os.environ.get("SLURM_PROCID", "0")) > 0 and is_step_of_several_tasks():
        return worker.returncode  # the first task records the result
    code = record_exit(run, worker.returncode, stopping=stopping)
    if worker.returncode <= 0 and code == 1:  # the worker itself printed no reason
        print(f"attnlab: the run {run.read_result().get('error')}; see {run.directory}", file=sys.stderr)
    return code


def start_worker(run: Run, environment: Mapping[str, str] | None = None, *, to_log: bool = False) -> Worker:
    """Start `python -m attnlab.jobs.worker` on a run directory.

    Args:
        run: a run whose config.yaml exists.
        environment: variables that replace or extend those of this process.
        to_log: write the worker's output to train.log instead of the terminal.
    """
    command = [sys.executable, "-m", "attnlab.jobs.worker", str(run.directory)]
    variables = {**worker_environment(), **(environment or {})}
    if not to_log:
        return start_supervised(command, variables)
    with run.log.open("ab") as log:
        return start_supervised(
            command, variables, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )


def worker_environment() -> dict[str, str]:
    """Return the environment of a worker process.

    It is that of this process without `TORCH_DISTRIBUTED`, which stays only in a Slurm step of several tasks,
    the ranks of one training, and with `PYTHONSAFEPATH`, since `python -m` would put the current folder first
    on the module search path, where a data file such as `torch.py` would replace a package.
    """
    removed = () if is_step_of_several_tasks() else TORCH_DISTRIBUTED
    environment = {key: value for key, value in os.environ.items() if key not in removed}
    return {**environment, "PYTHONSAFEPATH": "1"}


def is_step_of_several_tasks() -> bool:
    """Return whether this process is one of several that `srun` started."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1


def import_from_current_folder() -> None:
    """Let configurations name custom classes in the current folder and beside the user's folders of options.

    These folders are searched last, so that files in a data folder never replace installed packages.
    """
    folders = [str(Path.cwd()), *(str(folder.parent) for folder in user_folders())]
    sys.path += [folder for folder in folders if folder not in sys.path]


def record_exit(run: Run, code: int, *, stopping: bool, reason: str | None = None) -> int:
    """Update result.json if the worker ended before it could do so; returns the exit code of the run.

    It is 0, 1, `REFUSED`, `INTERRUPTED`, or `IN_USE` if another process works on the run and will record its
    status.

    Args:
        code: the worker's return code, negative if a signal ended it.
        stopping: whether a stop signal was sent to it.
        reason: why this process ended an unfinished worker that counts as failed.
    """
    try:
        with run.lock():
            status = run.read_result().get("status")
            if status == "finished":
                return 0
            if code == IN_USE:
                return IN_USE
            if reason is None and stopping and (code < 0 or status != "failed"):
                run.write_result("interrupted")
                return INTERRUPTED
            if reason is None and code == INTERRUPTED and status == "interrupted":
                signalled = "stopped by a signal to its process; run the same command again to resume"
                run.write_result("interrupted", error=signalled)
                return INTERRUPTED
            if reason is None and code < 0:
                reason = f"was killed by {signal.Signals(-code).name}"
            elif reason is None and status == "failed":
                return REFUSED if code == REFUSED else 1
            ended = f"ended with exit code {code} before it was finished, see {run.log}"
            run.write_result("failed", error=reason or ended)
    except InUseError:
        return IN_USE
    except OSError as error:
        print(f"attnlab: {run.result} cannot be written: {error}", file=sys.stderr)
    return 1


def start_supervised(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> Worker:
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


def kill(process: Worker) -> None:
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
