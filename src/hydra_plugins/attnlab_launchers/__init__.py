"""Launchers of sweeps: `hydra/launcher=slots`, `submitit_slurm` and `ray`.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


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
        self.loader = hydra_context.config_loader
        self.task: Any = task_function  # attnlab.jobs.train_task.TrainTask
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Train a batch of jobs; returns for each its monitored metric, None if it failed."""
        from attnlab.errors import needs

        setup_globals()
        configs = [self.task.compose_job(self.loader, self.config, job) for job in job_overrides]
        with needs(self.extra, "This launcher is not installed"):
            module = import_module(f"attnlab.jobs.{self.module}")
        scores = self.task.train_batch(configs, module.create(configs, **self.settings))
        returns = []
        for job, config, score in zip(job_overrides, configs, scores, strict=True):
            returns.append(JobReturn(overrides=job, cfg=config, hydra_cfg=self.config))
            returns[-1].status, returns[-1].return_value = JobStatus.COMPLETED, score
        return returns


class SlotsLauncher(RunLauncher):
    """Trains each run in a process on a GPU or a share of the cores."""

    module = "slot_scheduler"


class SlurmLauncher(RunLauncher):
    """Trains each run in a Slurm job."""

    module, extra = "slurm_scheduler", "slurm"


class RayLauncher(RunLauncher):
    """Trains each run in a Ray task."""

    module, extra = "ray_scheduler", "ray"
