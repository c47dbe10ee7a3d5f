"""Scheduling the jobs of a sweep on device slots, each in its own worker. Imports no torch.

A single thread starts all workers: Linux sends the parent-death signal (`die_with_parent`) when the thread
that started a process ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from attnlab.errors import UserError
from attnlab.runs import launcher
from attnlab.runs.directory import Run
from attnlab.runs.launcher import Worker
from attnlab.sweeps.jobs import describe, state
from attnlab.sweeps.slots import Slots

POLL_INTERVAL = 0.1
"""Seconds between two checks of the workers."""


@dataclass
class Job:
    """A run that waits for devices or uses them."""

    run: Run
    needs: int
    retries: int
    devices: list[str] = field(default_factory=list)
    terminated: bool = False


class Scheduler:
    """Trains runs on device slots.

    Jobs start in order: a job that waits for several devices delays the jobs after it.

    Args:
        slots: the devices.
        retries: how often a failed job is repeated.
        fail_fast: whether the first failure stops all jobs.
    """

    def __init__(self, slots: Slots, *, retries: int, fail_fast: bool) -> None:
        self.slots = slots
        self.retries = retries
        self.fail_fast = fail_fast
        self.waiting: deque[Job] = deque()
        self.running: dict[Worker, Job] = {}
        self.signals = 0  # number of stop signals received
        self.failed = 0
        self.ended = 0

    @property
    def stopping(self) -> bool:
        """True if no further jobs start and running jobs are stopped."""
        return self.signals > 0 or (self.fail_fast and self.failed > 0)

    def train(self, runs: Sequence[Run]) -> None:
        """Train all runs that are not finished; their results are in their directories.

        Raises:
            KeyboardInterrupt: after a stop signal.
            UserError: if a job failed and `fail_fast` is set.
        """
        console = Console(stderr=True)
        open_runs = [run for run in runs if state(run) != "finished"]
        if len(open_runs) < len(runs):
            console.print(
                f"{len(runs) - len(open_runs)} of {len(runs)} already finished; force=true trains them again"
            )

        def count_signal(*_: Any) -> None:
            self.signals += 1

        with launcher.handle_stop_signals(count_signal), _progress(console, len(open_runs)) as progress:
            self._enqueue(open_runs, progress)
            while self.running or (self.waiting and not self.stopping):
                self._start()
                self._stop()
                self._collect(progress)
                time.sleep(POLL_INTERVAL)
        if self.signals:
            raise KeyboardInterrupt
        if self.stopping:
            raise UserError(
                "The sweep stopped at the first failed job because of hydra.launcher.fail_fast=true"
            )

    def _enqueue(self, runs: Sequence[Run], progress: Progress) -> None:
        """Queue the runs that can be built; record the others as failed."""
        errors = find_errors(runs)
        for run in runs:
            try:
                if str(run.directory) in errors:
                    raise UserError(errors[str(run.directory)])
                self.waiting.append(Job(run, self.slots.needed(run.read_config().trainer), self.retries))
            except UserError as error:
                run.write_result("failed", error=str(error))
                self._end(run, progress)

    def _start(self) -> None:
        """Start waiting jobs while enough devices are free."""
        while self.waiting and not self.stopping:
            devices = self.slots.take(self.waiting[0].needs)
            if devices is None:
                return
            job = self.waiting.popleft()
            job.devices = devices
            worker = launcher.start(job.run, self.slots.environment(devices), to_log=True)
            self.running[worker] = job

    def _stop(self) -> None:
        """When stopping, terminate running jobs so that they save; kill them at a second signal."""
        for worker, job in self.running.items():
            if self.signals > 1:
                launcher.kill(worker)
            elif self.stopping and not job.terminated:
                job.terminated = True
                worker.terminate()

    def _collect(self, progress: Progress) -> None:
        """Record the results of workers that ended, and free their devices."""
        for worker in [worker for worker in self.running if worker.poll() is not None]:
            job = self.running.pop(worker)
            launcher.kill(worker)
            self.slots.release(job.devices)
            code = launcher.settle(job.run, worker.returncode, stopping=self.stopping)
            if code == 1 and job.retries > 0 and not self.stopping:
                job.retries -= 1
                progress.console.print(f"retrying: {describe(job.run)}", highlight=False, markup=False)
                self.waiting.append(job)
            else:
                self._end(job.run, progress)
        status = f"{len(self.running)} running · {len(self.waiting)} waiting · {self.failed} failed"
        progress.update(progress.task_ids[0], description=status, completed=self.ended)

    def _end(self, run: Run, progress: Progress) -> None:
        """Print the result of a job."""
        self.ended += 1
        progress.console.print(describe(run), highlight=False, markup=False, soft_wrap=True)
        if state(run) == "failed":
            self.failed += 1


def find_errors(runs: Sequence[Run]) -> dict[str, str]:
    """Return the errors of runs that cannot be built, by run directory; see `attnlab.sweeps.preflight`.

    A single run is not checked, since it would fail just as fast; nor are runs that have trained before.
    """
    fresh = [str(run.directory) for run in runs if not run.last.is_file()]
    if len(fresh) < 2:
        return {}
    command = [sys.executable, "-m", "attnlab.sweeps.preflight", *fresh]
    checked = subprocess.run(
        command, env=launcher.worker_environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    errors: dict[str, str] = json.loads(checked.stdout) if checked.returncode == 0 else {}
    return errors


def _progress(console: Console, total: int) -> Progress:
    """Create the progress bar of the sweep."""
    progress = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    progress.add_task("checking", total=total)
    return progress
