"""Hydra's task function of `attnlab train`, for single runs and for sweeps. Imports no torch."""

from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from attnlab.config.compose import accept, check_composed, explain, resolve
from attnlab.errors import INTERRUPTED, InUseError, UsageError, UserError
from attnlab.files.run_directory import Run, prepare_run, run_of
from attnlab.files.run_identity import flatten
from attnlab.jobs.scheduler import Scheduler
from attnlab.jobs.slots import check_devices
from attnlab.jobs.status import is_offline, print_finished, print_wandb_sync, score, state
from attnlab.jobs.worker_process import IN_USE, REFUSED, train_in_worker


class TrainTask:
    """Trains the run of each configuration that Hydra composes, and keeps a list of the runs.

    The state of a run is read from its directory, so it does not matter which process trained it.

    Attributes:
        runs: the runs of all jobs, by directory.
        in_use: error messages of the runs that another process works on, by directory.
        sweeping: whether this is a sweep.
        refused: the error of a single job. Hydra would print it a second time if it were raised.
        discarded: whether a single job was refused by its worker, which printed the error.
        created: the run directories that this command created.
        composed: the configurations of the jobs of a sweep, by overrides.
        zips: arguments `zip(…)` of the command line, which Hydra cannot parse.

    Args:
        prepare_only: create the run directory of a single job and print it, for workers that something else
            starts, such as torchrun.
    """

    def __init__(self, *, prepare_only: bool = False) -> None:
        self.prepare_only = prepare_only
        self.runs: dict[Path, Run] = {}
        self.in_use: dict[Path, str] = {}
        self.sweeping = False
        self.refused: UserError | None = None
        self.discarded = False
        self.created: set[Path] = set()
        self.composed: dict[tuple[str, ...], DictConfig] = {}
        self.zips: list[str] = []

    def __call__(self, config: DictConfig) -> float | None:
        """Train a job's run in this process's worker, unless it is finished.

        A run that fails records the error in its directory. Raising it would end the whole sweep.

        Returns:
            The monitored metric, for a Hydra sweeper that optimises it; None if the run failed.

        Raises:
            KeyboardInterrupt: if the run was interrupted, so that no further job starts.
        """
        self.sweeping = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            if not self.sweeping:
                if self.zips:
                    raise UsageError(f"{self.zips[0]}: this is a sweep: add -m")
                if not self.prepare_only:
                    check_devices(config)
                check_composed(config)
            run = self.prepare_run(config)
        except (UserError, OmegaConfBaseException) as error:
            if self.sweeping:
                raise
            self.refused = error if isinstance(error, UserError) else UsageError(explain(error))
            return None
        if run.directory in self.in_use:
            return None
        if self.prepare_only:
            print(run.directory)
            return None
        if state(run) == "finished":
            print_finished(run)
        else:
            print(f"run directory  {run.directory}", flush=True)
            code, _ = train_in_worker(run)
            if code == INTERRUPTED:
                raise KeyboardInterrupt
            if code == IN_USE:
                self.in_use[run.directory] = f"{run.directory} is in use by another process"
            if code == REFUSED and not self.sweeping:
                self.discard_run(run)
                return None
        if not self.sweeping and is_offline(run):
            print_wandb_sync(run.directory, "")
        return score(run)

    def prepare_run(self, config: DictConfig) -> Run:
        """Create the run directory of a job; raise `UserError` if the configuration cannot be trained.

        In a sweep, a run that another process uses is recorded in `in_use`, so that the others continue.
        """
        _check(config)
        run = run_of(config)
        if not run.directory.exists():
            self.created.add(run.directory)
        try:
            prepare_run(config)
        except InUseError as error:
            if not self.sweeping:
                raise
            self.in_use[run.directory] = str(error)
        self.runs[run.directory] = run
        return run

    def discard_run(self, run: Run) -> None:
        """Forget a run that was refused before training; remove its directory if this command created it."""
        self.discarded = True
        del self.runs[run.directory]
        if run.directory in self.created:
            run.discard()

    def compose_job(self, loader: ConfigLoader, sweep: DictConfig, overrides: Sequence[str]) -> DictConfig:
        """Return the resolved configuration of a job of a sweep, composed once for sweeper and launcher."""
        key = tuple(overrides)
        if key not in self.composed:
            self.composed[key] = resolve(loader.load_sweep_config(sweep, accept([*overrides])))
        return self.composed[key]

    def expect_runs(self, configs: Sequence[DictConfig]) -> None:
        """Record the runs of a sweep before they start, perhaps in other processes."""
        self.sweeping = True
        expected: dict[Path, DictConfig] = {}
        for config in configs:
            _check(config)
        for config in configs:
            run = run_of(config)
            first = expected.setdefault(run.directory, config)
            if first != config:
                raise UsageError(_same_run(run, first, config))
            self.runs[run.directory] = run

    def forget(self, configs: Sequence[DictConfig]) -> None:
        """Remove the runs of trials that ended from the list: a failed trial is no failure of the search."""
        for config in configs:
            self.runs.pop(run_of(config).directory, None)

    def train_batch(self, configs: Sequence[DictConfig], scheduler: Scheduler) -> list[float | None]:
        """Train the runs of some jobs of a sweep; returns their monitored metrics, None for failed jobs."""
        runs = [self.prepare_run(config) for config in configs]
        for run, config in zip(runs, configs, strict=True):
            if not config.force:  # else its files cannot be removed while another process uses it
                self.in_use.pop(run.directory, None)
        try:
            scheduler.train([run for run in dict.fromkeys(runs) if run.directory not in self.in_use])
        finally:
            self.in_use |= scheduler.in_use
        return [score(run) for run in runs]

    def exit_code(self) -> int:
        """Return 1 if a job failed or is in use, else `INTERRUPTED` if one is not finished, else 0.

        `REFUSED` if a single job was refused.
        """
        if self.discarded:
            return REFUSED
        states = {state(run) for run in self.runs.values()}
        if "failed" in states or self.in_use:
            return 1
        return 0 if states <= {"finished"} else INTERRUPTED


def _check(config: DictConfig) -> None:
    """Raise `UserError` at a setting that a run cannot have."""
    if config.get("attention_override") is not None:
        raise UsageError(
            "attention_override is a setting of attnlab evaluate: attnlab evaluate RUN "
            f"attention_override={config.attention_override}"
        )
    if config.get("explain") is not None:
        raise UsageError("explain is a setting of attnlab evaluate: attnlab evaluate RUN explain=all")


def _same_run(run: Run, first: DictConfig, second: DictConfig) -> str:
    settings = flatten(first), flatten(second)
    differing = {
        name: ",".join(str(values.get(name)) for values in settings)
        for name in settings[0] | settings[1]
        if settings[0].get(name) != settings[1].get(name)
    }
    swept = " ".join(f"{name}={values}" for name, values in differing.items())
    return (
        f"{swept}: these jobs are the same run, {run.directory.name}, because this setting does not change "
        "its results: give one value"
    )
