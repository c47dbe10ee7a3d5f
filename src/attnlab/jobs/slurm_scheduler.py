"""Training the runs of a sweep in Slurm jobs, submitted by submitit. Imports no torch."""

import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import submitit
from omegaconf import DictConfig
from submitit.helpers import DelayedSubmission

from attnlab.errors import INTERRUPTED, UserError
from attnlab.files.run_directory import Run
from attnlab.jobs.scheduler import Scheduler
from attnlab.jobs.worker_process import ClusterTask

QUEUE_INTERVAL = 5.0  # Seconds between two calls of squeue

USUAL_REASONS = {"None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime"}
"""Reasons of Slurm for a job to wait that end by themselves."""

OF_ALL_EXECUTORS = (
    *("name", "timeout_min", "mem_gb", "nodes"),
    *("cpus_per_task", "gpus_per_node", "tasks_per_node"),
)
"""Parameters whose names in submitit have no prefix `slurm_`."""


class SlurmTask(ClusterTask):
    """Function of a Slurm job. Slurm queues the job again before its time limit, or when its node fails."""

    def checkpoint(self) -> DelayedSubmission:
        """Return what the job runs when it is queued again; called by submitit shortly before the limit."""
        return DelayedSubmission(self)


class SlurmScheduler(Scheduler):
    """Submits the runs as a job array, and asks `squeue` which jobs have ended.

    submitit itself would ask `sacct`, which needs Slurm's accounting database. The settings are those of
    conf/hydra/launcher/submitit_slurm.yaml.
    """

    def __init__(self, *, submitit_folder: str, max_num_timeout: int, **parameters: Any) -> None:
        super().__init__()
        try:
            self.executor = submitit.AutoExecutor(
                submitit_folder, cluster="slurm", slurm_max_num_timeout=max_num_timeout
            )
        except RuntimeError:
            raise UserError(
                "hydra/launcher=submitit_slurm: srun was not found: start the sweep on a cluster's machine"
            ) from None
        self.executor.update_parameters(
            **{
                name if name in OF_ALL_EXECUTORS else f"slurm_{name}": value
                for name, value in parameters.items()
                if value is not None
            }
        )
        self.jobs: dict[Run, submitit.Job[int]] = {}
        self.absent: dict[Run, int] = {}  # number of times that the queue did not contain a run's job
        self.reasons: set[str] = set()  # reported reasons for jobs to wait
        self.read_at = 0.0

    def submit(self, runs: Sequence[Run]) -> None:
        jobs = self.executor.submit_array([SlurmTask(run.directory) for run in runs])
        self.jobs = dict(zip(runs, jobs, strict=True))

    def collect(self) -> dict[Run, int | str]:
        self._read_queue()
        ended: dict[Run, int | str] = {}
        for run, job in self.jobs.items():
            first = job.task(0)
            absent = self.absent.get(run, 0)
            with suppress(Exception):  # any exception of a job, which may be queued again
                if first.paths.result_pickle.exists():
                    code = first.result()
                    # Slurm also interrupts the jobs of a node that fails, and queues them again
                    if code != INTERRUPTED or absent:
                        ended[run] = code
            if run not in ended and absent > 1:  # twice: a shared file system may show a result late
                ended[run] = f"the Slurm job {job.job_id} ended without a result, see {first.paths.stderr}"
        for run in ended:
            del self.jobs[run]
        return ended

    def _read_queue(self) -> None:
        """Ask Slurm, once per `QUEUE_INTERVAL`, which jobs are in the queue."""
        now = time.monotonic()
        if now - self.read_at < QUEUE_INTERVAL or not self.jobs:
            return
        self.read_at = now
        command = ["squeue", "--noheader", "--array", "--format=%i %r", f"--jobs={','.join(self._arrays())}"]
        queue = subprocess.run(command, check=False, capture_output=True, text=True)
        if queue.returncode != 0 and "Invalid job id" not in queue.stderr:
            return  # Slurm's controller does not answer
        queued = dict(line.split(maxsplit=1) for line in queue.stdout.splitlines())
        for run, job in self.jobs.items():
            self.absent[run] = 0 if job.job_id in queued else self.absent.get(run, 0) + 1
        for reason in sorted({*queued.values()} - USUAL_REASONS - self.reasons):
            self.reasons.add(reason)
            self.progress.print(f"Slurm lets jobs wait: {reason}; squeue shows which ones")

    def _arrays(self) -> list[str]:
        return sorted({job.job_id.partition("_")[0] for job in self.jobs.values()})

    def cancel(self) -> None:
        """Cancel all jobs: their workers receive SIGTERM."""
        subprocess.run(["scancel", *self._arrays()], check=False, capture_output=True)


def create(_: Sequence[DictConfig], **settings: Any) -> SlurmScheduler:
    """Return the scheduler with the settings of `hydra.launcher`."""
    return SlurmScheduler(**settings)
