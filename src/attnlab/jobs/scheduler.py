"""Training the runs of a sweep, on this machine or on a cluster. Imports no torch."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from attnlab.errors import InUseError
from attnlab.files.run_directory import Run
from attnlab.files.terminal import print_line
from attnlab.jobs.interruption import handle_signals
from attnlab.jobs.progress import JobProgress, SweepProgress
from attnlab.jobs.status import read_status, state
from attnlab.jobs.worker_process import IN_USE


class Scheduler(ABC):
    """Trains the runs of a sweep and waits for all of them.

    A stop signal cancels the jobs, which save a checkpoint and stop.

    Attributes:
        in_use: error messages of the runs that another process uses.
        signals: number of stop signals received.
        failed: number of failed jobs.
        pending: runs whose jobs have not ended.
        shown: progress of every run, for the terminal.
        on_start, on_end: called with a run when its job starts, and when it has ended.
    """

    POLL_INTERVAL: ClassVar[float] = 1.0
    """Seconds between two checks of the jobs."""

    progress: SweepProgress

    def __init__(self) -> None:
        self.in_use: dict[Path, str] = {}
        self.signals = 0
        self.failed = 0
        self.pending: list[Run] = []
        self.shown: dict[Run, JobProgress] = {}
        self.on_start: Callable[[Run], None] = lambda run: None
        self.on_end: Callable[[Run], None] = lambda run: None
        self._started: set[Run] = set()

    @abstractmethod
    def submit(self, runs: Sequence[Run]) -> None:
        """Start or queue a job for each run."""

    @abstractmethod
    def collect(self) -> dict[Run, int | str]:
        """Return the runs whose jobs ended since the last call.

        Returns:
            For each run the exit code of its worker, see `attnlab.jobs.worker_process.record_exit`, or the
            error of a job that ended without a worker that recorded one.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Stop all jobs of the sweep."""

    def running(self) -> list[Run]:
        """Return the runs that are training."""
        return [run for run in self.pending if run.read_result().get("status") == "running"]

    @property
    def stopping(self) -> bool:
        """True if no further jobs start and running jobs are stopped."""
        return self.signals > 0

    def train(self, runs: Sequence[Run]) -> None:
        """Train all runs that are not finished; their results are in their directories.

        Raises:
            KeyboardInterrupt: after a stop signal.
        """
        console = Console(stderr=True)
        self.pending = unfinished(runs, console)
        self.shown = {run: JobProgress(run, run.read_config()) for run in self.pending}
        self.progress = SweepProgress(console, len(self.pending))
        with handle_signals(self._count_signal), self.progress.bars:
            if self.pending:
                self.submit([*self.pending])
                self._wait()
        if self.signals:
            raise KeyboardInterrupt

    def _wait(self) -> None:
        """Wait until all jobs have ended; cancel them when the sweep stops."""
        cancelled = False
        while self.pending:
            if self.stopping and not cancelled:
                cancelled = True
                self.cancel()
            for run, code in self.collect().items():
                self._end(run, code)
            running = self.running()
            for run in running:
                self._start(run)
            self.progress.update(
                [self.shown[run] for run in running],
                ended=len(self.shown) - len(self.pending),
                waiting=len(self.pending) - len(running),
                failed=self.failed,
            )
            time.sleep(self.POLL_INTERVAL)

    def _start(self, run: Run) -> None:
        if run not in self._started:
            self._started.add(run)
            self.on_start(run)

    def _end(self, run: Run, code: int | str) -> None:
        self.pending.remove(run)
        if isinstance(code, str) or code == IN_USE:
            try:
                with suppress(OSError), run.lock():
                    # A job that was cancelled before its worker started has not failed
                    cancelled = self.signals > 0 and run.read_result().get("status") != "running"
                    if code == IN_USE:
                        self.in_use[run.directory] = f"{run.directory} was in use by another process"
                    elif state(run) != "finished" and not cancelled:
                        run.write_result("failed", error=code)
            except InUseError as error:
                self.in_use[run.directory] = str(error)
        if run.directory in self.in_use:
            self.progress.print(f"{'in use':12} {self.in_use[run.directory]}")
        elif (status := read_status(run)).state != "waiting":
            self.progress.print(status.describe())
            self.failed += status.state == "failed"
            self._start(run)  # it may have started and ended between two checks
            self.on_end(run)

    def _count_signal(self, *_: Any) -> None:
        self.signals += 1


def unfinished(runs: Sequence[Run], console: Console) -> list[Run]:
    """Return the runs that are not finished; print how many are, and which of these lack outputs."""
    open_runs = [run for run in runs if state(run) != "finished"]
    if len(open_runs) < len(runs):
        finished = len(runs) - len(open_runs)
        message = f"{finished} of {len(runs)} already finished; to train them again, add force=true"
        print_line(message, console=console)
    for run in runs:
        if run not in open_runs and run.missing_outputs():
            print_line(read_status(run).describe(), console=console)
    return open_runs
