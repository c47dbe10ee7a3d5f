"""Launchers of sweeps: `hydra/launcher=slots`, `submitit_slurm` and `ray`.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class RunLauncher(Launcher):
    """Trains the runs of a sweep with a scheduler."""

    @abstractmethod
    def scheduler(self, configs: Sequence[DictConfig]) -> Any:
        """Return the `attnlab.jobs.scheduler.Scheduler` that trains the runs of these configurations."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store what `launch` needs; called by Hydra."""
        self.loader = hydra_context.config_loader
        self.task: Any = task_function  # attnlab.jobs.train_task.TrainTask
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Train a batch of jobs; returns for each its monitored metric, None if it failed."""
        setup_globals()
        configs = [self.task.compose_job(self.loader, self.config, job) for job in job_overrides]
        scores = self.task.train_batch(configs, self.scheduler(configs))
        returns = []
        for job, config, score in zip(job_overrides, configs, scores, strict=True):
            returns.append(JobReturn(overrides=job, cfg=config, hydra_cfg=self.config))
            returns[-1].status, returns[-1].return_value = JobStatus.COMPLETED, score
        return returns


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
