"""Training the jobs of a sweep over slots, each in a worker of its own. Imports no torch.

One thread does it all, as the process that a worker dies with must be its thread: what Linux watches is the
thread that started it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

PAUSE = 0.1
"""Seconds between two looks at the workers."""


@dataclass
class Job:
    """A run that waits for its devices, or has them."""

    run: Run
    needs: int
    retries: int
    devices: list[str] = field(default_factory=list)
    told_to_stop: bool = False


class Dispatch:
    """Trains runs over slots.

    Jobs start in their order; one that needs several devices waits for them, and those behind it with it.

    Args:
        slots: what they run on.
        retries: how often a job that failed is tried again.
        fail_fast: whether the first job that fails ends them all.
    """

    def __init__(self, slots: Slots, *, retries: int, fail_fast: bool) -> None:
        self.slots = slots
        self.retries = retries
        self.fail_fast = fail_fast
        self.waiting: deque[Job] = deque()
        self.running: dict[Worker, Job] = {}
        self.asked = 0  # how often a signal has asked to stop
        self.failed = 0
        self.ended = 0

    @property
    def stopping(self) -> bool:
        """Whether no more jobs start, and those that run are to end."""
        return self.asked > 0 or (self.fail_fast and self.failed > 0)

    def train(self, runs: Sequence[Run]) -> None:
        """Train all runs that are not finished; how each ended stands in its directory.

        Raises:
            KeyboardInterrupt: if a signal asked to stop.
            UserError: if a job failed and `fail_fast` is set.
        """
        console = Console(stderr=True)
        open_runs = [run for run in runs if state(run) != "finished"]
        if len(open_runs) < len(runs):
            console.print(
                f"{len(runs) - len(open_runs)} of {len(runs)} finished already; force=true starts over"
            )

        def ask(*_: Any) -> None:
            self.asked += 1

        with _handling(ask), _progress(console, len(open_runs)) as progress:
            self._enqueue(open_runs, progress)
            while self.running or (self.waiting and not self.stopping):
                self._start()
                self._stop()
                self._collect(progress)
                time.sleep(PAUSE)
        if self.asked:
            raise KeyboardInterrupt
        if self.stopping:
            raise UserError("stopped at the first job that failed, as hydra.launcher.fail_fast=true asks")

    def _enqueue(self, runs: Sequence[Run], progress: Progress) -> None:
        """Line up what can be built; record what cannot as failed."""
        reasons = find_impossible(runs)
        for run in runs:
            try:
                if str(run.directory) in reasons:
                    raise UserError(reasons[str(run.directory)])
                self.waiting.append(Job(run, self.slots.needed(run.read_config().trainer), self.retries))
            except UserError as error:
                run.write_result("failed", error=str(error))
                self._end(run, progress)

    def _start(self) -> None:
        """Start waiting jobs while there are devices for them."""
        while self.waiting and not self.stopping:
            devices = self.slots.take(self.waiting[0].needs)
            if devices is None:
                return
            job = self.waiting.popleft()
            job.devices = devices
            worker = launcher.start(job.run, self.slots.environment(devices), to_log=True)
            self.running[worker] = job

    def _stop(self) -> None:
        """When stopping, tell those that run: asked once in good order, asked again at once."""
        for worker, job in self.running.items():
            if self.asked > 1:
                launcher.kill(worker)
            elif self.stopping and not job.told_to_stop:
                job.told_to_stop = True
                worker.terminate()

    def _collect(self, progress: Progress) -> None:
        """Settle the workers that have ended, and free their devices."""
        for worker in [worker for worker in self.running if worker.poll() is not None]:
            job = self.running.pop(worker)
            launcher.kill(worker)
            self.slots.give_back(job.devices)
            code = launcher.settle(job.run, worker.returncode, stopping=self.stopping)
            if code == 1 and job.retries > 0 and not self.stopping:
                job.retries -= 1
                progress.console.print(f"tried again: {describe(job.run)}", highlight=False, markup=False)
                self.waiting.append(job)
            else:
                self._end(job.run, progress)
        said = f"{len(self.running)} running · {len(self.waiting)} waiting · {self.failed} failed"
        progress.update(progress.task_ids[0], description=said, completed=self.ended)

    def _end(self, run: Run, progress: Progress) -> None:
        """Say how a job ended."""
        self.ended += 1
        progress.console.print(describe(run), highlight=False, markup=False, soft_wrap=True)
        if state(run) == "failed":
            self.failed += 1


def find_impossible(runs: Sequence[Run]) -> dict[str, str]:
    """The directories of runs that cannot be built, with the reasons.

    One run alone is not worth the seconds: it finds out by itself. Nor is one that has trained before.
    """
    fresh = [str(run.directory) for run in runs if not run.last.is_file()]
    if len(fresh) < 2:
        return {}
    command = [sys.executable, "-m", "attnlab.sweeps.preflight", *fresh]
    checked = subprocess.run(
        command, env=launcher.own_environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    reasons: dict[str, str] = json.loads(checked.stdout) if checked.returncode == 0 else {}
    return reasons


@contextmanager
def _handling(handler: Any) -> Iterator[None]:
    """Take over the two signals that ask to stop."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _progress(console: Console, total: int) -> Progress:
    """The one line of the whole sweep."""
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
