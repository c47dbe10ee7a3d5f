"""`hydra/launcher=slots`: every job of a sweep in a process of its own, on a GPU or a share of the cores.

Hydra imports this at every start, so it imports little.
"""

import copy
from collections.abc import Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write


class SlotsLauncher(Launcher):
    """Composes all jobs of a batch, then trains them over slots: see conf/hydra/launcher/slots.yaml."""

    def __init__(
        self,
        *,
        slots: int | None,
        jobs_per_gpu: int,
        threads: int | None,
        retries: int,
        fail_fast: bool,
    ) -> None:
        super().__init__()
        self.resources: dict[str, Any] = {"slots": slots, "jobs_per_gpu": jobs_per_gpu, "threads": threads}
        self.policy: dict[str, Any] = {"retries": retries, "fail_fast": fail_fast}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra hands over what is needed to compose jobs."""
        self.hydra_context = hydra_context
        self.jobs = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Train a batch of jobs.

        Returns:
            For each job, in order, what its checkpoints are chosen by; None for one that failed.
        """
        from attnlab.sweeps.jobs import Jobs, score
        from attnlab.sweeps.scheduler import Dispatch
        from attnlab.sweeps.slots import find_slots

        assert isinstance(self.jobs, Jobs)
        setup_globals()
        returns = [self._compose(list(words), initial_job_idx + n) for n, words in enumerate(job_overrides)]
        configs = [job.cfg for job in returns if job.cfg is not None]
        slots = find_slots([config.trainer for config in configs], **self.resources)
        runs = [self.jobs.prepare(config) for config in configs]
        self.jobs.sweeping = True
        Dispatch(slots, **self.policy).train(list(dict.fromkeys(runs)))
        for job, run in zip(returns, runs, strict=True):
            job.return_value = score(run)
        return returns

    def _compose(self, overrides: list[str], number: int) -> JobReturn:
        """A job's configuration, resolved, as what Hydra will be told of the job."""
        whole = self.hydra_context.config_loader.load_sweep_config(self.config, overrides)
        with open_dict(whole):
            whole.hydra.job.id = str(number)
            whole.hydra.job.num = number
        HydraConfig.instance().set_config(whole)
        config = copy.deepcopy(whole)
        with read_write(config), open_dict(config):
            del config["hydra"]
        OmegaConf.resolve(config)
        return JobReturn(overrides=overrides, cfg=config, hydra_cfg=whole, status=JobStatus.COMPLETED)
