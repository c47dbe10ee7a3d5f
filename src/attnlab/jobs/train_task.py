"""Hydra's task function of `attnlab train`, for single runs and for sweeps. Imports no torch."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnlab.config.compose import accept, check_composed, explain, resolve
from attnlab.config.options import CONF, UNNAMED, cached_yaml
from attnlab.errors import INTERRUPTED, UsageError, UserError
from attnlab.files.run_directory import Run, prepare_run, run_of
from attnlab.jobs.ledger import Ledger, check_job
from attnlab.jobs.scheduler import Scheduler
from attnlab.jobs.status import print_finished, read_status, state
from attnlab.jobs.worker_process import IN_USE, REFUSED, train_in_worker


class TrainTask:
    """Trains the run of each configuration that Hydra composes.

    Attributes:
        swept: settings and groups that the command line gives several values.
        ledger: the runs of a sweep.
        outcome: exit code of a single run, or why it was refused. Hydra would print an error that is raised.

    Args:
        prepare_only: create the run directory of a single run and print it, for workers that something else
            starts, such as torchrun.
        zips: arguments `zip(…)` of the command line, which Hydra cannot parse.
    """

    def __init__(self, *, prepare_only: bool = False, zips: Sequence[str] = ()) -> None:
        self.prepare_only = prepare_only
        self.zips = zips
        self.swept: set[str] = set()
        self.ledger = Ledger()
        self.outcome: int | UserError = 0
        self._composed: dict[tuple[str, ...], tuple[DictConfig, DictConfig]] = {}

    def __call__(self, config: DictConfig) -> float | None:
        """Train a single run, or a job of a launcher that runs jobs in this process; called by Hydra.

        Returns:
            The monitored metric of a job, for a sweeper that optimises it; None if it failed.
        """
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return self._train_job(config)
        try:
            self.outcome = self._train_single(config)
        except UserError as error:
            self.outcome = error
        except OmegaConfBaseException as error:
            self.outcome = UsageError(explain(error))
        except OSError as error:  # of standard output
            self.outcome = UserError(f"{error.filename}: {error.strerror}")
        return None

    def _train_single(self, config: DictConfig) -> int:
        """Train a single run, unless it is finished; returns the exit code of the command."""
        if self.zips:
            raise UsageError(f"{self.zips[0]}: this is a sweep: add -m")
        check_composed(config)
        check_job(config)
        created = not run_of(config).directory.exists()
        run = prepare_run(config)
        if self.prepare_only:
            print(run.directory)
            return 0
        try:
            code = _train_unless_finished(run)
        except OSError:
            if created:
                run.discard()
            raise
        if code == REFUSED and created:
            run.discard()
        return 1 if code == IN_USE else code

    def _train_job(self, config: DictConfig) -> float | None:
        hydra = HydraConfig.get()  # this launcher does not call `compose_job`
        self._name_options(config, hydra.overrides.task, hydra.runtime.choices)
        check_composed(config)
        run = self.ledger.prepare(config)
        if _train_unless_finished(run) == INTERRUPTED:
            raise KeyboardInterrupt
        return read_status(run).score

    def compose_job(
        self, loader: ConfigLoader, sweep: DictConfig, overrides: Sequence[str]
    ) -> tuple[DictConfig, DictConfig]:
        """Return the configuration of a job, composed once for sweeper and launcher.

        The first one is resolved; the second one has the node `hydra`, for callbacks of Hydra.
        """
        key = tuple(overrides)
        if key not in self._composed:
            composed: DictConfig = loader.load_sweep_config(sweep, accept([*overrides]))
            self._name_options(composed, overrides, composed.hydra.runtime.choices)
            self._composed[key] = resolve(composed), composed
        return self._composed[key]

    def _name_options(self, config: DictConfig, overrides: Sequence[str], choices: Mapping[str, Any]) -> None:
        """Append the options of swept groups to the default variant, the option of attention."""
        default = OmegaConf.to_container(config, resolve=False)["variant"]  # type: ignore[index,call-overload]
        if default != cached_yaml(CONF / "train.yaml")["variant"]:
            return
        chosen = dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)
        groups = [key for key in chosen if key in self.swept - UNNAMED and key in choices]
        config.variant = "-".join([default, *(re.sub(r"[^\w.+]+", "_", chosen[key]) for key in groups)])

    def train_batch(self, configs: Sequence[DictConfig], scheduler: Scheduler) -> list[float | None]:
        """Train the runs of some jobs of a sweep; returns their monitored metrics, None for failed jobs."""
        runs = [self.ledger.prepare(config) for config in configs]
        scheduler.train([*dict.fromkeys(runs)])
        return [read_status(run).score for run in runs]


def _train_unless_finished(run: Run) -> int:
    """Train a run in a worker, or print its scores; returns the exit code of the worker."""
    if state(run) == "finished":
        print_finished(run)
        return 0
    print(f"run directory  {run.directory}", flush=True)
    return train_in_worker(run)
