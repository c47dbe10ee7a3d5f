"""Hydra's basic sweeper, which also checks and records the jobs of the sweep before they start.

Hydra imports this module at every start, so it imports attnlab only when a sweep starts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class GridSweeper(BasicSweeper):
    """Sweeper that records the runs of all jobs before any launcher starts them.

    Launchers such as submitit and Ray run jobs in other processes. The sweep still ends with a table of all
    its jobs, whose states are read from the run directories.

    Args:
        max_batch_size: largest number of jobs that are started together; None for all.
        params: values of each setting of the grid, in Hydra's syntax.
        overrides: further overrides of the jobs that have a value of a setting, by setting and value:
            `{model: {mingru: [encoder=mingru]}}`. The command line replaces them.
    """

    def __init__(
        self,
        max_batch_size: int | None,
        params: dict[str, str],
        overrides: Mapping[str, Mapping[str, Sequence[str]]],
    ) -> None:
        super().__init__(max_batch_size, params)
        self.overrides_of = overrides

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Store what checks the jobs; called by Hydra."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.loader = hydra_context.config_loader
        self.task: Any = task_function  # attnlab.jobs.train_task.TrainTask

    def sweep(self, arguments: list[str]) -> Any:
        """Run the sweep; called by Hydra. A key of the command line replaces that key of `params`."""
        plain = [word.removeprefix("++") for word in arguments]
        known = [word.partition("=")[0] in self.params for word in plain]
        return super().sweep([p if k else word for word, p, k in zip(arguments, plain, known, strict=True)])

    def get_job_batch(self) -> Sequence[Sequence[str]]:
        """Return the overrides of each job of the next batch."""
        return [expand(job, self.overrides_of) for job in super().get_job_batch()]

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose the jobs of a batch, which finds errors in them, and record their runs."""
        self.task.expect_runs([self.task.compose_job(self.loader, self.config, job) for job in batch])


def expand(job: Sequence[str], overrides: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
    """Return the overrides of a job with those that its values stand for.

    Raises:
        UsageError: at a value that has no overrides.
    """
    from attnlab.errors import UsageError

    given = dict(override.lstrip("+").split("=", maxsplit=1) for override in job)
    added = []
    for key, by_value in overrides.items():
        if given.get(key) not in by_value:
            raise UsageError(f"{key}={given.get(key)}: choose from {', '.join(by_value)}")
        added += [word for word in by_value[given[key]] if word.partition("=")[0] not in given]
    return [*added, *job]
