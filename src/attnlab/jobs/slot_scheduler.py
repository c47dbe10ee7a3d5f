"""Scheduling the jobs of a sweep on the devices of this machine, each in its own worker. Imports no torch."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig

from attnlab.errors import INTERRUPTED, UserError
from attnlab.files.run_directory import Run
from attnlab.jobs import worker_process
from attnlab.jobs.scheduler import Scheduler
from attnlab.jobs.slots import Slots, find_slots
from attnlab.jobs.status import read_status, state
from attnlab.jobs.worker_process import IN_USE, STOP_TIMEOUT, Worker, kill


@dataclass
class Job:
    """A run that waits for devices or uses them."""

    run: Run  # run directory
    needs: int  # number of devices
    retries: int  # how often it may still be repeated
    devices: list[str] = field(default_factory=list)  # devices that it uses
    started_at: float = 0.0  # time of its last start, by `time.monotonic`
    stopped_at: float | None = None  # time at which it was asked to stop
    reason: str | None = None  # why it was stopped, if it counts as failed


class SlotScheduler(Scheduler):
    """Trains runs on device slots.

    Jobs start in order: a job that waits for several devices delays the jobs after it. A run that another
    process uses is tried again after all others. The settings are those of conf/hydra/launcher/slots.yaml.
    """

    POLL_INTERVAL = 0.1

    def __init__(self, slots: Slots, *, retries: int, fail_fast: bool, timeout: float | None = None) -> None:
        super().__init__()
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            raise UserError(f"hydra.launcher.timeout={timeout}: must be a number of minutes > 0, or null")
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            raise UserError(f"hydra.launcher.retries={retries}: must be a whole number ≥ 0")
        self.slots = slots
        self.retries = retries
        self.fail_fast = fail_fast
        self.timeout = timeout
        self.waiting: deque[Job] = deque()
        self.workers: dict[Worker, Job] = {}
        self.refused: list[Job] | None = []  # jobs whose run is in use; None once they are tried again
        self.ended: dict[Run, int | str] = {}  # returned by the next `collect`

    @property
    def stopping(self) -> bool:
        """True after a stop signal, or after the first failure if `fail_fast` is set."""
        return super().stopping or (self.fail_fast and self.failed > 0)

    def train(self, runs: Sequence[Run]) -> None:
        """Train all runs that are not finished; their results are in their directories."""
        super().train(runs)
        if self.stopping:
            raise UserError(
                "The sweep stopped at the first failed job because of hydra.launcher.fail_fast=true"
            )

    def submit(self, runs: Sequence[Run]) -> None:
        for run in runs:
            try:
                needs = self.slots.needed(run.read_config().trainer)
            except UserError as error:
                self.ended[run] = str(error)
            else:
                self.waiting.append(Job(run, needs, self.retries))

    def running(self) -> list[Run]:
        return [job.run for job in self.workers.values()]

    def cancel(self) -> None:
        for worker, job in self.workers.items():
            self._terminate(worker, job)
        dropped = [job.run for job in (*self.waiting, *(self.refused or ()))]
        self.ended |= dict.fromkeys(dropped, INTERRUPTED)
        self.waiting.clear()
        self.refused = None

    def collect(self) -> dict[Run, int | str]:
        """Start waiting jobs, stop those that take too long, and return the runs whose jobs have ended."""
        self._start_waiting()
        self._stop_at_timeout()
        for worker in [worker for worker in self.workers if worker.poll() is not None]:
            job = self.workers.pop(worker)
            kill(worker)
            self.slots.release(job.devices)
            code = worker_process.record_exit(
                job.run, worker.returncode, stopping=self.stopping, reason=job.reason
            )
            if code == IN_USE and self.refused is not None:
                self.refused.append(job)
            elif code == 1 and job.retries > 0 and not self.stopping:
                job.retries -= 1
                self.progress.print(f"retrying: {read_status(job.run).describe()}")
                self.waiting.append(job)
            else:
                self.ended[job.run] = code
        ended, self.ended = self.ended, {}
        return ended

    def _start_waiting(self) -> None:
        if self.refused and not self.waiting and not self.workers:
            self.waiting.extend(self.refused)
            self.refused = None
        while self.waiting and not self.stopping:
            devices = self.slots.take(self.waiting[0].needs)
            if devices is None:
                return
            job = self.waiting.popleft()
            try:
                if state(job.run) == "finished":  # meanwhile, by another process
                    self.ended[job.run] = 0
                else:
                    job.stopped_at, job.reason = None, None
                    job.started_at = time.monotonic()
                    worker = worker_process.start_worker(
                        job.run, self.slots.environment(devices), to_log=True
                    )
                    self.slots.pin(worker.pid, devices)
                    job.devices, self.workers[worker] = devices, job
            except (UserError, OSError) as error:
                self.ended[job.run] = str(error)
            if job.run in self.ended:
                self.slots.release(devices)

    def _stop_at_timeout(self) -> None:
        """Ask jobs to stop at a timeout; kill those that do not stop, all at a second signal."""
        now = time.monotonic()
        for worker, job in self.workers.items():
            if job.stopped_at is None:
                if self.timeout is not None and now - job.started_at > 60 * self.timeout:
                    job.reason = f"stopped after {self.timeout:g} minutes (hydra.launcher.timeout)"
                    self._terminate(worker, job)
            elif self.signals > 1 or now - job.stopped_at > STOP_TIMEOUT:
                kill(worker)

    def _terminate(self, worker: Worker, job: Job) -> None:
        if job.stopped_at is None:
            job.stopped_at = time.monotonic()
            worker.terminate()


def create(
    configs: Sequence[DictConfig], *, retries: int, fail_fast: bool, timeout: float | None, **resources: Any
) -> SlotScheduler:
    """Return the scheduler of jobs with these configurations; for `resources` see `find_slots`."""
    slots = find_slots([config.trainer for config in configs], **resources)
    return SlotScheduler(slots, retries=retries, fail_fast=fail_fast, timeout=timeout)
