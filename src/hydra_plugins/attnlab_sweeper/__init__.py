"""Sweepers: every combination of values, `hydra/sweeper=grid`, and a search, `hydra/sweeper=optuna`.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

import shlex
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

    Its arguments are the settings of conf/hydra/sweeper/grid.yaml.
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

        return self.train_all(list_jobs(*self.grid, [*arguments, *self.task.zips]))

    def compose(self, job: Sequence[str]) -> DictConfig:
        """Return the configuration of a job."""
        config: DictConfig = self.task.compose_job(self.loader, self.config, job)[0]
        return config

    def train_all(self, jobs: Sequence[Sequence[str]]) -> Any:
        """Check and record the runs of all jobs, then train them."""
        self.task.ledger.expect([self.compose(job) for job in jobs])
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        returns = self.launcher.launch(jobs, initial_job_idx=0)
        for result in returns:
            _ = result.return_value  # raises the error of a job that failed
        return returns


class OptunaSweeper(GridSweeper):
    """Sweeper that searches for the best values of each variant, see conf/hydra/sweeper/optuna.yaml.

    `**options` are arguments of `attnlab.jobs.hyperparameter_search.search`.
    """

    def __init__(
        self, params: Any, zip: Any, overrides: Any, compare: Sequence[str], seeds: str | None, **options: Any
    ) -> None:
        super().__init__(params, zip, overrides)
        self.compare, self.seeds, self.options = compare, seeds, options

    def sweep(self, arguments: list[str]) -> Any:
        """Search, and train the best values with all seeds; called by Hydra."""
        from attnlab.errors import needs
        from attnlab.jobs.grid import list_jobs, split_space

        with needs("tune", "hydra/sweeper=optuna needs Optuna"):
            from attnlab.jobs.hyperparameter_search import search

        params, zips, further = self.grid
        space, others = split_space(params, arguments, self.compare)
        variants = list_jobs({}, zips, further, [*others, *self.task.zips])
        best = search(variants, space, compose=self.compose, train=self.train_trials, **self.options)
        if self.seeds is not None:
            seeded = [list_jobs({}, [], {}, [*words, f"seed={self.seeds}"]) for words in best]
            return self.train_all([job for jobs in seeded for job in jobs])
        for words in best:
            print(f"best  attnlab train {shlex.join(word.removeprefix('++') for word in words)}")
        return []

    def train_trials(self, jobs: Sequence[Sequence[str]]) -> Any:
        """Train trials; those that failed are no failures of the sweep."""
        returns = self.launcher.launch(jobs, initial_job_idx=0)
        self.task.ledger.forget([result.cfg for result in returns])
        return returns
