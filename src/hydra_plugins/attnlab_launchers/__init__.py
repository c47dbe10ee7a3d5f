"""Launchers of sweeps: `hydra/launcher=slots`, `submitit_slurm` and `ray`.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict, read_write


class RunLauncher(Launcher):
    """Trains the runs of a sweep with a scheduler."""

    @abstractmethod
    def scheduler(self, configs: Sequence[DictConfig]) -> Any:
        """Return the `attnlab.jobs.scheduler.Scheduler` that trains the runs of these configurations."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store what `launch` needs; called by Hydra."""
        self.loader, self.callbacks = hydra_context.config_loader, hydra_context.callbacks
        self.task: Any = task_function  # attnlab.jobs.train_task.TrainTask
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Train a batch of jobs; returns for each its monitored metric, None if it failed."""
        setup_globals()
        configs = [self.task.compose_job(self.loader, self.config, job) for job in job_overrides]
        scheduler = self.scheduler(configs)
        if self.callbacks.callbacks:
            self.call_back(scheduler, job_overrides, initial_job_idx)
        scores = self.task.train_batch(configs, scheduler)
        returns = []
        for job, config, score in zip(job_overrides, configs, scores, strict=True):
            returns.append(JobReturn(overrides=job, cfg=config, hydra_cfg=self.config))
            returns[-1].status, returns[-1].return_value = JobStatus.COMPLETED, score
        return returns

    def call_back(self, scheduler: Any, jobs: Sequence[Sequence[str]], first: int) -> None:
        """Let a scheduler call Hydra's callbacks when the worker of a job starts, and when it has ended.

        `hydra.runtime.output_dir` is the run directory. As in Hydra, an interrupted job has no `on_job_end`.
        """
        from attnlab.errors import UserError
        from attnlab.files.run_directory import Run, run_of
        from attnlab.jobs.status import read_status

        configs: dict[Run, DictConfig] = {}
        results: dict[Run, JobReturn] = {}
        for number, job in enumerate(jobs, first):
            hydra_cfg = self.task.compose_with_hydra(self.loader, self.config, job)
            cfg = self.task.compose_job(self.loader, self.config, job)
            run = run_of(cfg)
            with open_dict(hydra_cfg.hydra), read_write(hydra_cfg.hydra):
                hydra_cfg.hydra.job.num, hydra_cfg.hydra.job.id = number, str(number)
                hydra_cfg.hydra.runtime.output_dir = str(run.directory)
            configs[run] = hydra_cfg
            results[run] = JobReturn(overrides=job, cfg=cfg, hydra_cfg=hydra_cfg, task_name="train")

        def start(run: Run) -> None:
            self.callbacks.on_job_start(config=configs[run], task_function=self.task)

        def end(run: Run) -> None:
            status, result = read_status(run), results[run]
            result.status, result.return_value = JobStatus.COMPLETED, status.score
            if status.state != "finished":
                error = UserError(f"{run.directory.name}: {status.result.get('error')}")
                result.status, result.return_value = JobStatus.FAILED, error
            if status.state != "interrupted":
                self.callbacks.on_job_end(config=configs[run], job_return=result)

        scheduler.on_start, scheduler.on_end = start, end


class SlotsLauncher(RunLauncher):
    """Trains each run in a process on a GPU or a share of the cores; see conf/hydra/launcher/slots.yaml."""

    def __init__(
        self, *, slots: int | None, jobs_per_gpu: int, threads: int | None, pin: bool, **policy: Any
    ) -> None:
        super().__init__()
        self.resources: dict[str, Any] = {
            "slots": slots,
            "jobs_per_gpu": jobs_per_gpu,
            "threads": threads,
            "pin": pin,
        }
        self.policy = policy

    def scheduler(self, configs: Sequence[DictConfig]) -> Any:
        from attnlab.jobs.slot_scheduler import SlotScheduler
        from attnlab.jobs.slots import find_slots

        return SlotScheduler(
            find_slots([config.trainer for config in configs], **self.resources), **self.policy
        )


class SlurmLauncher(RunLauncher):
    """Trains each run in a Slurm job; see conf/hydra/launcher/submitit_slurm.yaml."""

    def __init__(self, *, submitit_folder: str, max_num_timeout: int, **parameters: Any) -> None:
        super().__init__()
        self.submission: dict[str, Any] = {"folder": submitit_folder, "max_num_timeout": max_num_timeout}
        self.parameters = parameters

    def scheduler(self, configs: Sequence[DictConfig]) -> Any:
        from attnlab.errors import needs

        with needs("slurm", "This launcher is not installed"):
            from attnlab.jobs.slurm_scheduler import SlurmScheduler

        return SlurmScheduler(**self.submission, parameters=self.parameters)


class RayLauncher(RunLauncher):
    """Trains each run in a Ray task; see conf/hydra/launcher/ray.yaml."""

    def __init__(self, *, ray: DictConfig) -> None:
        super().__init__()
        self.ray = ray

    def scheduler(self, configs: Sequence[DictConfig]) -> Any:
        from attnlab.errors import needs

        with needs("ray", "This launcher is not installed"):
            from attnlab.jobs.ray_scheduler import RayScheduler

        return RayScheduler(init=self.ray.init, remote=self.ray.remote)
