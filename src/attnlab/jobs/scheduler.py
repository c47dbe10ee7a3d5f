"""Training the runs of a sweep, on this machine or on a cluster. Imports no torch."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from attnlab.errors import InUseError
from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run
from attnlab.files.terminal import print_line
from attnlab.jobs.interruption import handle_signals
from attnlab.jobs.status import read_status, state
from attnlab.metrics.registry import metric

LINE_INTERVAL = 60.0  # Seconds between two lines about a job


class SweepProgress:
    """Prints a line about each running job every minute, above a bar of the sweep on a terminal."""

    def __init__(self, console: Console, total: int) -> None:
        columns = (
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self.bar = Progress(
            *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        self.total = total
        self.started = time.monotonic()
        self.sweep = self.bar.add_task("checking", total=total)
        self.printed: dict[Run, tuple[float, int]] = {}  # when a job was last looked at, and its step then

    def print(self, line: str) -> None:
        """Print a line above the bar."""
        print_line(line, console=self.bar.console)

    def print_end(self, line: str, pending: int) -> None:
        """Print the line of a job that ended; in a sweep, with the minutes that the others will take."""
        if self.total > 1:  # a search trains its trials one by one
            ended = self.total - pending
            minutes = round((time.monotonic() - self.started) / ended * pending / 60)
            line += f"  {ended} of {self.total}" + (f", about {minutes} min left" if minutes else "")
        self.print(line)

    def update(self, running: Sequence[Run], *, pending: int, failed: int) -> None:
        """Show the state of the sweep, and the last validations of its running jobs."""
        status = f"{len(running)} running · {pending - len(running)} waiting · {failed} failed"
        self.bar.update(self.sweep, description=status, completed=self.total - pending)
        now = time.monotonic()
        for run in running:
            before, printed = self.printed.setdefault(run, (now, -1))
            if now - before < LINE_INTERVAL or not run.metrics.is_file():
                continue
            monitor = run.read_settings()["checkpoint"]["monitor"]
            step, score = [(-1, 0.0), *read_metrics(run.metrics).get(monitor, [])][-1]
            self.printed[run] = now, step
            if step > printed:
                value = metric(monitor).with_unit(score)
                self.print(f"{'running':12} step {step}  {run.directory.name}  {monitor} {value}")


class Scheduler(ABC):
    """Trains the runs of a sweep and waits for all of them.

    Attributes:
        signals: number of stop signals received.
        failed: number of failed jobs.
        pending: runs whose jobs have not ended.
        on_start, on_end: called with a run when its job starts, and when it has ended.
    """

    POLL_INTERVAL: ClassVar[float] = 1.0  # Seconds between two checks of the jobs

    progress: SweepProgress

    def __init__(self) -> None:
        self.signals = 0
        self.failed = 0
        self.pending: list[Run] = []
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
        """Train all runs that are not finished; their results are in their directories."""
        console = Console(stderr=True)
        self.pending = unfinished(runs, console)
        self.progress = SweepProgress(console, len(self.pending))
        with handle_signals(self._count_signal), self.progress.bar:
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
            self.progress.update(running, pending=len(self.pending), failed=self.failed)
            time.sleep(self.POLL_INTERVAL)

    def _start(self, run: Run) -> None:
        if run not in self._started:
            self._started.add(run)
            self.on_start(run)

    def _end(self, run: Run, code: int | str) -> None:
        self.pending.remove(run)
        if isinstance(code, str):
            with suppress(OSError, InUseError), run.lock():
                # A job that was cancelled before its worker started has not failed
                cancelled = self.signals > 0 and run.read_result().get("status") != "running"
                if state(run) != "finished" and not cancelled:
                    run.write_result("failed", error=code)
        status = read_status(run)
        if status.state == "waiting":
            return
        self.progress.print_end(status.describe(), len(self.pending))
        self.failed += status.state == "failed"
        if status.state != "in use":
            self._start(run)  # it may have started and ended between two checks
            self.on_end(run)

    def _count_signal(self, *_: Any) -> None:
        self.signals += 1


def unfinished(runs: Sequence[Run], console: Console) -> list[Run]:
    """Return the runs that are not finished, and print how many are."""
    open_runs = [run for run in runs if state(run) != "finished"]
    if len(open_runs) < len(runs):
        finished = len(runs) - len(open_runs)
        message = f"{finished} of {len(runs)} already finished; to train them again, add force=true"
        print_line(message, console=console)
    return open_runs
