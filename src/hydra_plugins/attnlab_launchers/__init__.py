"""Launchers of sweeps: `hydra/launcher=slots`, `submitit_slurm` and `ray`.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

if TYPE_CHECKING:
    from attnlab.jobs.cluster import ClusterScheduler
    from attnlab.jobs.scheduler import Scheduler


class RunLauncher(Launcher):
    """Composes all jobs of a sweep, creates their run directories, and trains the runs with a scheduler."""

    @abstractmethod
    def scheduler(self, configs: Sequence[DictConfig]) -> Scheduler | ClusterScheduler:
        """Return what trains the runs of these configurations."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store what `launch` needs; called by Hydra."""
        self.hydra_context = hydra_context
        self.jobs = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Train a batch of jobs.

        Returns:
            For each job, in order, its monitored metric; None if it failed.
        """
        from attnlab.jobs.sweep import Jobs, score

        assert isinstance(self.jobs, Jobs)
        setup_globals()
        loader = self.hydra_context.config_loader
        configs = [self.jobs.compose(loader, self.config, job) for job in job_overrides]
        scheduler = self.scheduler(configs)
        runs = [self.jobs.prepare(config) for config in configs]
        for run, config in zip(runs, configs, strict=True):
            if not config.force:  # else its files cannot be removed while another process uses it
                self.jobs.in_use.pop(run.directory, None)
        try:
            scheduler.train([run for run in dict.fromkeys(runs) if run.directory not in self.jobs.in_use])
        finally:
            self.jobs.in_use |= scheduler.in_use
        returns = []
        for job, config, run in zip(job_overrides, configs, runs, strict=True):
            result = JobReturn(overrides=job, cfg=config, hydra_cfg=self.config, status=JobStatus.COMPLETED)
            result.return_value = score(run)
            returns.append(result)
        return returns


class SlotsLauncher(RunLauncher):
    """Trains each run in a process on a GPU or a share of the cores; see conf/hydra/launcher/slots.yaml."""

    def __init__(
        self,
        *,
        slots: int | None,
        jobs_per_gpu: int,
        threads: int | None,
        retries: int,
        fail_fast: bool,
        timeout: float | None,
        progress_timeout: float | None,
    ) -> None:
        super().__init__()
        self.resources: dict[str, Any] = {"slots": slots, "jobs_per_gpu": jobs_per_gpu, "threads": threads}
        self.policy: dict[str, Any] = {
            "retries": retries,
            "fail_fast": fail_fast,
            "timeout": timeout,
            "progress_timeout": progress_timeout,
        }

    def scheduler(self, configs: Sequence[DictConfig]) -> Scheduler:
        """Return the scheduler of this machine's devices."""
        from attnlab.jobs.scheduler import Scheduler
        from attnlab.jobs.slots import find_slots

        slots = find_slots([config.trainer for config in configs], **self.resources)
        return Scheduler(slots, **self.policy)


class SlurmLauncher(RunLauncher):
    """Trains each run in a Slurm job; see conf/hydra/launcher/submitit_slurm.yaml."""

    def __init__(self, *, submitit_folder: str, max_num_timeout: int, **parameters: Any) -> None:
        super().__init__()
        self.submission: dict[str, Any] = {"folder": submitit_folder, "max_num_timeout": max_num_timeout}
        self.parameters = parameters

    def scheduler(self, configs: Sequence[DictConfig]) -> ClusterScheduler:
        """Return the scheduler that submits array jobs to Slurm."""
        with _explained("submitit", "slurm"):
            from attnlab.jobs.slurm import SlurmScheduler

        return SlurmScheduler(**self.submission, parameters=self.parameters)


class RayLauncher(RunLauncher):
    """Trains each run in a Ray task; see conf/hydra/launcher/ray.yaml."""

    def __init__(self, *, ray: DictConfig) -> None:
        super().__init__()
        self.ray = ray

    def scheduler(self, configs: Sequence[DictConfig]) -> ClusterScheduler:
        """Return the scheduler that submits Ray tasks."""
        with _explained("ray", "ray"):
            from attnlab.jobs.ray_tasks import RayScheduler

        return RayScheduler(init=self.ray.init, remote=self.ray.remote)


@contextmanager
def _explained(package: str, extra: str) -> Iterator[None]:
    """Raise `UserError` if the import of a package inside the block fails because it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        from attnlab.errors import UserError

        raise UserError(f"This launcher is not installed: pip install 'attnlab[{extra}]'") from None
