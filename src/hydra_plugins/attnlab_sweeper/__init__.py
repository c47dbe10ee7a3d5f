"""Hydra's basic sweeper, which also tells the jobs of the sweep to attnlab.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class GridSweeper(BasicSweeper):
    """Sweeper that records the runs of all jobs before any launcher starts them.

    Launchers such as submitit and Ray run jobs in other processes. The sweep still ends with a table of all
    its jobs, whose states are read from the run directories.
    """

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store the list of jobs; called by Hydra."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.jobs = task_function

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose the jobs of a batch, which finds errors in them, and record their runs."""
        from attnlab.sweeps.jobs import Jobs

        assert isinstance(self.jobs, Jobs)
        assert self.hydra_context is not None
        assert self.config is not None
        loader = self.hydra_context.config_loader
        self.jobs.expect([self.jobs.compose(loader, self.config, job) for job in batch])
