"""Launchers of sweeps: `hydra/launcher=slots`, `submitit_slurm` and `ray`.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write


class RunLauncher(Launcher):
    """Trains the runs of a sweep with a scheduler of `attnlab.jobs`.

    Args:
        **settings: those of its file in conf/hydra/launcher, which `create` of the scheduler's module gets.
    """

    module: str
    extra = ""  # optional dependencies of attnlab that the module needs

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store what `launch` needs; called by Hydra."""
        self.loader, self.callbacks = hydra_context.config_loader, hydra_context.callbacks
        self.task: Any = task_function  # attnlab.jobs.train_task.TrainTask
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Train a batch of jobs; returns for each its monitored metric, None if it failed."""
        from attnlab.errors import needs

        setup_globals()
        jobs = [self.task.compose_job(self.loader, self.config, job) for job in job_overrides]
        configs = [config for config, _ in jobs]
        with needs(self.extra, "This launcher is not installed"):
            module = import_module(f"attnlab.jobs.{self.module}")
        scheduler = module.create(configs, **self.settings)
        if self.callbacks.callbacks:
            self.call_back(scheduler, jobs, initial_job_idx)
        scores = self.task.train_batch(configs, scheduler)
        returns = []
        for job, config, score in zip(job_overrides, configs, scores, strict=True):
            returns.append(JobReturn(overrides=job, cfg=config, hydra_cfg=self.config))
            returns[-1].status, returns[-1].return_value = JobStatus.COMPLETED, score
        return returns

    def call_back(self, scheduler: Any, jobs: Sequence[tuple[DictConfig, DictConfig]], first: int) -> None:
        """Let a scheduler call Hydra's callbacks when the worker of a job starts, and when it has ended.

        `hydra.runtime.output_dir` is the run directory. As in Hydra, an interrupted job has no `on_job_end`.
        """
        from attnlab.errors import UserError
        from attnlab.files.run_directory import Run, run_of
        from attnlab.jobs.status import read_status

        started: dict[Run, tuple[DictConfig, JobReturn]] = {}
        for number, (config, composed) in enumerate(jobs, first):
            run = run_of(config)
            with open_dict(composed.hydra), read_write(composed.hydra):
                composed.hydra.job.num, composed.hydra.job.id = number, str(number)
                composed.hydra.runtime.output_dir = str(run.directory)
            overrides = composed.hydra.overrides.task
            started[run] = composed, JobReturn(overrides, config, hydra_cfg=composed, task_name="train")

        def start(run: Run) -> None:
            self.callbacks.on_job_start(config=started[run][0], task_function=self.task)

        def end(run: Run) -> None:
            status, (composed, result) = read_status(run), started[run]
            result.status, result.return_value = JobStatus.COMPLETED, status.score
            if status.state != "finished":
                error = UserError(f"{run.directory.name}: {status.result.get('error')}")
                result.status, result.return_value = JobStatus.FAILED, error
            if status.state != "interrupted":
                self.callbacks.on_job_end(config=composed, job_return=result)

        scheduler.on_start, scheduler.on_end = start, end


class SlotsLauncher(RunLauncher):
    """Trains each run in a process on a GPU or a share of the cores."""

    module = "slot_scheduler"


class SlurmLauncher(RunLauncher):
    """Trains each run in a Slurm job."""

    module, extra = "slurm_scheduler", "slurm"


class RayLauncher(RunLauncher):
    """Trains each run in a Ray task."""

    module, extra = "ray_scheduler", "ray"
