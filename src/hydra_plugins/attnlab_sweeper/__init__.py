"""Sweeper of every combination of values: `hydra/sweeper=grid`.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class GridSweeper(Sweeper):
    """Sweeper that checks and records the runs of all jobs before any launcher starts them.

    Launchers such as submitit and Ray run jobs in other processes. The sweep still ends with a table of all
    its jobs, whose states are read from the run directories.

    Args:
        params: values of each setting of the grid, in Hydra's syntax.
        zip: groups of settings whose values change together, in Hydra's syntax.
        overrides: further overrides of the jobs that have a value of a setting, by setting and value:
            `{model: {mingru: [encoder=mingru]}}`. The command line replaces them.
    """

    def __init__(
        self,
        params: Mapping[str, str],
        zip: Sequence[Mapping[str, str]],
        overrides: Mapping[str, Mapping[str, Sequence[str]]],
    ) -> None:
        self.grid = params, zip, overrides

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store what `sweep` needs; called by Hydra."""
        self.loader = hydra_context.config_loader
        self.task: Any = task_function  # attnlab.jobs.train_task.TrainTask
        self.config: DictConfig = config
        self.launcher: Launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Train all jobs; called by Hydra with the overrides of the command line."""
        from attnlab.jobs.grid import list_jobs

        jobs = list_jobs(*self.grid, [*arguments, *self.task.zips], self.loader)
        self.task.expect_runs([self.task.compose_job(self.loader, self.config, job) for job in jobs])
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        returns = self.launcher.launch(jobs, initial_job_idx=0)
        for result in returns:
            _ = result.return_value  # raises the error of a job that failed
        return returns
