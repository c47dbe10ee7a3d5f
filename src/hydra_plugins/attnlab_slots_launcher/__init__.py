"""`hydra/launcher=slots`: each job of a sweep in its own process, on a GPU or a share of the cores.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class SlotsLauncher(Launcher):
    """Composes all jobs of a sweep, then trains them on device slots; see conf/hydra/launcher/slots.yaml."""

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
        from attnlab.sweeps.jobs import Jobs, score
        from attnlab.sweeps.scheduler import Scheduler
        from attnlab.sweeps.slots import find_slots

        assert isinstance(self.jobs, Jobs)
        setup_globals()
        loader = self.hydra_context.config_loader
        configs = [self.jobs.compose(loader, self.config, job) for job in job_overrides]
        slots = find_slots([config.trainer for config in configs], **self.resources)
        scheduler = Scheduler(slots, **self.policy)
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
