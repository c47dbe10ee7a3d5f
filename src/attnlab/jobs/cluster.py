"""Training the runs of a sweep on a cluster, whose own scheduler starts the jobs. Imports no torch.

All machines see the run directories. The state of a run is read from there, whatever machine trained it.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from attnlab.errors import InUseError
from attnlab.files.run_directory import Run
from attnlab.jobs import launcher
from attnlab.jobs.launcher import IN_USE, Worker
from attnlab.jobs.progress import JobFiles, SweepProgress
from attnlab.jobs.scheduler import find_errors, unfinished
from attnlab.jobs.sweep import describe, state

POLL_INTERVAL = 1.0
"""Seconds between two checks of the jobs."""

WAIT_INTERVAL = 0.5
"""Seconds between two checks of a worker inside a job."""


@dataclass(frozen=True)
class Task:
    """Function of a cluster's job: trains a run, or resumes it if the cluster starts the job again.

    Attributes:
        directory: run directory.
        folder: current folder of the sweep, in which custom classes and data files are found.
        command: command of the sweep, for result.json.
    """

    directory: Path
    folder: Path = field(default_factory=Path.cwd)
    command: str = field(default_factory=lambda: os.environ.get("ATTNLAB_COMMAND", ""))

    def __call__(self) -> int:
        """Train the run in a worker process; returns its exit code, see `attnlab.jobs.launcher.settle`."""
        os.chdir(self.folder)
        os.environ["ATTNLAB_COMMAND"] = self.command
        run = Run(self.directory)
        return 0 if state(run) == "finished" else launcher.train(run, wait=wait, to_log=True).code


def wait(worker: Worker) -> int:
    """Wait until a worker ends, in short steps: Ray interrupts Python code, but no system call."""
    while (code := worker.poll()) is None:
        time.sleep(WAIT_INTERVAL)
    return code


class ClusterScheduler(ABC):
    """Submits the runs of a sweep to a cluster and waits for all of them.

    A stop signal cancels the jobs, which save a checkpoint and stop.

    Attributes:
        in_use: error messages of the runs that another process uses.
        messages: lines to print.
    """

    def __init__(self) -> None:
        self.in_use: dict[Path, str] = {}
        self.messages: list[str] = []
        self.signals = 0  # number of stop signals received

    @abstractmethod
    def submit(self, runs: Sequence[Run]) -> None:
        """Submit a job for each run."""

    @abstractmethod
    def collect(self) -> dict[Run, int | str]:
        """Return the runs whose jobs ended since the last call.

        Returns:
            For each run the exit code of its `Task`, or why the job ended without one.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Stop all jobs of the sweep."""

    def train(self, runs: Sequence[Run]) -> None:
        """Train all runs that are not finished; their results are in their directories.

        Raises:
            KeyboardInterrupt: after a stop signal.
        """
        console = Console(stderr=True)
        open_runs = unfinished(runs, console)
        progress = SweepProgress(console, len(open_runs))
        with launcher.handle_stop_signals(self._count_signal), progress.bars:
            errors = find_errors(open_runs, lambda: self.signals > 0)
            for run in open_runs:
                if str(run.directory) in errors:
                    run.write_result("failed", error=errors[str(run.directory)])
                    progress.print(describe(run))
            waiting = [run for run in open_runs if str(run.directory) not in errors]
            if waiting and not self.signals:
                self.submit(waiting)
                self._wait(waiting, progress)
        if self.signals:
            raise KeyboardInterrupt

    def _wait(self, waiting: list[Run], progress: SweepProgress) -> None:
        """Wait until the jobs of all runs have ended; cancel them at a stop signal."""
        files = {run: JobFiles(run, run.read_config()) for run in waiting}
        total = len(waiting)
        cancelled = False
        while waiting:
            if self.signals and not cancelled:
                cancelled = True
                self.cancel()
            for run, code in self.collect().items():
                waiting.remove(run)
                self._settle(run, code)
                progress.print(
                    f"{'in use':12} {self.in_use[run.directory]}" if code == IN_USE else describe(run)
                )
            while self.messages:
                progress.print(self.messages.pop(0))
            running = [run for run in waiting if run.read_result().get("status") == "running"]
            progress.update(
                [files[run] for run in running],
                ended=total - len(waiting),
                waiting=len(waiting) - len(running),
                failed=sum(state(run) == "failed" for run in files.keys() - set(waiting)),
            )
            time.sleep(POLL_INTERVAL)

    def _settle(self, run: Run, code: int | str) -> None:
        """Record a run that another process uses, or one whose job ended before its worker did."""
        try:
            with run.lock():
                # A job that was cancelled before its worker started has not failed
                cancelled = self.signals > 0 and run.read_result().get("status") != "running"
                if isinstance(code, str) and state(run) != "finished" and not cancelled:
                    run.write_result("failed", error=code)
        except InUseError as error:
            self.in_use[run.directory] = str(error)
        else:
            if code == IN_USE:
                self.in_use[run.directory] = f"{run.directory} was in use by another process"

    def _count_signal(self, *_: Any) -> None:
        self.signals += 1
