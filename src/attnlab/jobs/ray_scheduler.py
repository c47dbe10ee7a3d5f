"""Training the runs of a sweep in Ray tasks. Imports no torch."""

from collections.abc import Sequence
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf

from attnlab.files.run_directory import Run
from attnlab.jobs.scheduler import Scheduler
from attnlab.jobs.worker_process import ClusterTask


class RayScheduler(Scheduler):
    """Submits each run as a Ray task. Ray starts the tasks of a node that fails on another one."""

    def __init__(self, *, init: DictConfig, remote: DictConfig) -> None:
        super().__init__()
        self.init: Any = OmegaConf.to_container(init, resolve=True)
        self.remote: Any = OmegaConf.to_container(remote, resolve=True)
        self.runs: dict[ray.ObjectRef[int], Run] = {}

    def submit(self, runs: Sequence[Run]) -> None:
        """Connect to the cluster, or start one on this machine, and submit a task for each run."""
        if not ray.is_initialized():  # by the batch of runs before
            ray.init(**self.init)
        train = ray.remote(**self.remote)(_train)
        self.runs = {train.remote(ClusterTask(run.directory)): run for run in runs}

    def collect(self) -> dict[Run, int | str]:
        if not self.runs:
            return {}
        ready, _ = ray.wait([*self.runs], num_returns=len(self.runs), timeout=0)
        return {self.runs.pop(task): _result(task) for task in ready}

    def cancel(self) -> None:
        for task in self.runs:
            ray.cancel(task)


def _train(task: ClusterTask) -> int:
    return task()


def _result(task: ray.ObjectRef[int]) -> int | str:
    """Return the result of a task that has ended, or why it has none."""
    try:
        code: int = ray.get(task)
    except ray.exceptions.RayError as error:
        return f"the Ray task ended without a result: {str(error).strip().splitlines()[0]}"
    return code


def create(_: Sequence[DictConfig], ray: DictConfig) -> RayScheduler:
    """Return the scheduler with the settings of `hydra.launcher`."""
    return RayScheduler(init=ray.init, remote=ray.remote)
