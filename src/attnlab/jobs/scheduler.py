"""Scheduling the jobs of a sweep on device slots, each in its own worker. Imports no torch."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from attnlab.errors import InUseError, UserError
from attnlab.files.run_directory import Run
from attnlab.jobs import launcher
from attnlab.jobs.launcher import IN_USE, STOP_TIMEOUT, Worker
from attnlab.jobs.progress import JobFiles, SweepProgress
from attnlab.jobs.slots import Slots
from attnlab.jobs.supervision import kill, start_supervised
from attnlab.jobs.sweep import describe, state

POLL_INTERVAL = 0.1
"""Seconds between two checks of the workers."""


@dataclass
class Job:
    """A run that waits for devices or uses them.

    Attributes:
        run: run directory.
        needs: number of devices.
        retries: how often it may still be repeated.
        files: its files, which show its progress.
        devices: devices that it uses.
        started_at: time of its last start, by `time.monotonic`.
        stopped_at: time at which it was asked to stop.
        reason: why it was stopped, if it counts as failed.
    """

    run: Run
    needs: int
    retries: int
    files: JobFiles
    devices: list[str] = field(default_factory=list)
    started_at: float = 0.0
    stopped_at: float | None = None
    reason: str | None = None


class Scheduler:
    """Trains runs on device slots.

    Jobs start in order: a job that waits for several devices delays the jobs after it. A run that another
    process uses is tried again after all others.

    Args:
        slots: the devices.
        retries: how often a failed job is repeated.
        fail_fast: whether the first failure stops all jobs.
        timeout: minutes after which a job is stopped; None for no limit.
        progress_timeout: minutes without a change of its files after which a job is stopped; None for no
            limit.

    Attributes:
        in_use: error messages of the runs that another process used both times.
    """

    def __init__(
        self,
        slots: Slots,
        *,
        retries: int,
        fail_fast: bool,
        timeout: float | None = None,
        progress_timeout: float | None = None,
    ) -> None:
        for name, value in (("timeout", timeout), ("progress_timeout", progress_timeout)):
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise UserError(f"hydra.launcher.{name}={value}: must be a number of minutes > 0, or null")
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            raise UserError(f"hydra.launcher.retries={retries}: must be a whole number ≥ 0")
        self.slots = slots
        self.retries = retries
        self.fail_fast = fail_fast
        self.timeout = timeout
        self.progress_timeout = progress_timeout
        self.waiting: deque[Job] = deque()
        self.running: dict[Worker, Job] = {}
        self.refused: list[Job] | None = []  # None: their second attempt has begun
        self.in_use: dict[Path, str] = {}
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
        open_runs = unfinished(runs, console)
        progress = SweepProgress(console, len(open_runs))
        with launcher.handle_stop_signals(self._count_signal), progress.bars:
            self._enqueue(open_runs, progress)
            while self.running or ((self.waiting or self.refused) and not self.stopping):
                self._start(progress)
                self._stop()
                self._collect(progress)
                time.sleep(POLL_INTERVAL)
        if self.signals:
            raise KeyboardInterrupt
        if self.stopping:
            raise UserError(
                "The sweep stopped at the first failed job because of hydra.launcher.fail_fast=true"
            )

    def _count_signal(self, *_: Any) -> None:
        self.signals += 1

    def _enqueue(self, runs: Sequence[Run], progress: SweepProgress) -> None:
        """Queue the runs that can be built; record the others as failed."""
        errors = find_errors(runs, lambda: self.stopping)
        for run in runs:
            with self._failing(run, progress):
                if str(run.directory) in errors:
                    raise UserError(errors[str(run.directory)])
                config = run.read_config()
                needs = self.slots.needed(config.trainer)
                self.waiting.append(Job(run, needs, self.retries, JobFiles(run, config)))

    @contextmanager
    def _failing(self, run: Run, progress: SweepProgress) -> Iterator[None]:
        """Record an error inside the block as that of the run, so that the other jobs continue."""
        try:
            yield
        except (UserError, OSError) as error:
            with suppress(OSError):
                run.write_result("failed", error=str(error))
            self._end(run, progress)

    def _start(self, progress: SweepProgress) -> None:
        """Start waiting jobs while enough devices are free."""
        if self.refused and not self.waiting and not self.running:
            self.waiting.extend(self.refused)
            self.refused = None
        while self.waiting and not self.stopping:
            devices = self.slots.take(self.waiting[0].needs)
            if devices is None:
                return
            job = self.waiting.popleft()
            if state(job.run) == "finished":  # meanwhile, by another process
                self.slots.release(devices)
                self._end(job.run, progress)
                continue
            job.devices, job.stopped_at, job.reason = devices, None, None
            job.started_at = job.files.changed_at = time.monotonic()
            with self._failing(job.run, progress):
                try:
                    worker = launcher.start(job.run, self.slots.environment(devices), to_log=True)
                except (UserError, OSError):
                    self.slots.release(devices)
                    raise
                self.running[worker] = job

    def _stop(self) -> None:
        """Ask jobs to stop when the sweep stops or at a timeout; kill them later, or at a second signal."""
        now = time.monotonic()
        for worker, job in self.running.items():
            if job.stopped_at is None:
                job.reason = None if self.stopping else self._timed_out(job, now)
                if self.stopping or job.reason is not None:
                    job.stopped_at = now
                    worker.terminate()
            elif self.signals > 1 or now - job.stopped_at > STOP_TIMEOUT:
                kill(worker)

    def _timed_out(self, job: Job, now: float) -> str | None:
        """Return why a job must be stopped, or None."""
        if self.timeout is not None and now - job.started_at > 60 * self.timeout:
            return f"stopped after {self.timeout:g} minutes (hydra.launcher.timeout)"
        if self.progress_timeout is not None and now - job.files.changed_at > 60 * self.progress_timeout:
            return f"no progress for {self.progress_timeout:g} minutes (hydra.launcher.progress_timeout)"
        return None

    def _collect(self, progress: SweepProgress) -> None:
        """Record the results of workers that ended, and free their devices."""
        for worker in [worker for worker in self.running if worker.poll() is not None]:
            job = self.running.pop(worker)
            kill(worker)
            self.slots.release(job.devices)
            code = launcher.settle(job.run, worker.returncode, stopping=self.stopping, reason=job.reason)
            if code == IN_USE:
                self._refuse(job, progress)
            elif code == 1 and job.retries > 0 and not self.stopping:
                job.retries -= 1
                progress.print(f"retrying: {describe(job.run)}")
                self.waiting.append(job)
            else:
                self._end(job.run, progress)
        progress.update(
            [job.files for job in self.running.values()],
            ended=self.ended,
            waiting=len(self.waiting) + len(self.refused or ()),
            failed=self.failed,
        )

    def _refuse(self, job: Job, progress: SweepProgress) -> None:
        """Postpone a run that another process uses, or give it up after its second attempt."""
        if self.refused is not None:
            self.refused.append(job)
            return
        try:
            with job.run.lock():
                message = f"{job.run.directory} was in use by another process"
        except InUseError as error:
            message = str(error)
        self.in_use[job.run.directory] = message
        self.ended += 1
        progress.print(f"{'in use':12} {message}")

    def _end(self, run: Run, progress: SweepProgress) -> None:
        """Print the result of a job."""
        self.ended += 1
        progress.print(describe(run))
        if state(run) == "failed":
            self.failed += 1


def unfinished(runs: Sequence[Run], console: Console) -> list[Run]:
    """Return the runs that are not finished; print how many are, and which of these lack outputs."""
    open_runs = [run for run in runs if state(run) != "finished"]
    if len(open_runs) < len(runs):
        console.print(
            f"{len(runs) - len(open_runs)} of {len(runs)} already finished; force=true trains them again"
        )
    for run in runs:
        if run not in open_runs and run.missing_outputs():
            console.print(describe(run), highlight=False, markup=False, soft_wrap=True)
    return open_runs


def find_errors(runs: Sequence[Run], stopped: Callable[[], bool]) -> dict[str, str]:
    """Return the errors of runs that cannot be built, by run directory; see `attnlab.jobs.preflight`.

    A single run is not checked, since it would fail just as fast; nor are runs that have trained before.

    Args:
        runs: the runs.
        stopped: whether the check should be given up.
    """
    fresh = [str(run.directory) for run in runs if not run.last.is_file()]
    if len(fresh) < 2:
        return {}
    command = [sys.executable, "-m", "attnlab.jobs.preflight", *fresh]
    with start_supervised(command, launcher.worker_environment(), stdout=subprocess.PIPE) as check:
        output = None
        while output is None and not stopped():
            with suppress(subprocess.TimeoutExpired):
                output, _ = check.communicate(timeout=POLL_INTERVAL)
        kill(check)
    errors: dict[str, str] = json.loads(output) if output and check.returncode == 0 else {}
    return errors
