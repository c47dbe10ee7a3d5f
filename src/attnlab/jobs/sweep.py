"""The jobs of one `attnlab train` command: a single run, or all runs of a sweep. Imports no torch."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlab.config.compose import accept, check_composed, explain, resolve
from attnlab.errors import InUseError, UsageError, UserError
from attnlab.files import run_directory as directory
from attnlab.files.digests import changed_files
from attnlab.files.run_directory import Run
from attnlab.files.run_identity import flatten
from attnlab.jobs import launcher
from attnlab.jobs.slots import check_devices

STATES = ("finished", "failed", "interrupted", "in use", "waiting")
"""States of a job after its sweep ended: another process uses it, or it never started and is waiting."""


class Jobs:
    """Hydra's task function: trains the run of each composed configuration, and keeps a list of the runs.

    The state of a run is read from its directory, so it does not matter which process trained it.

    Attributes:
        runs: the runs of all jobs, by directory.
        in_use: error messages of the runs that another process works on, by directory.
        sweeping: whether this is a sweep.
        refused: the error of a single job. Hydra would print it a second time if it were raised.
        created: the run directories that this command created.
        discarded: whether a single job was refused while its objects were built.
        composed: the configurations of the jobs of a sweep, by overrides.

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
        self.created: set[Path] = set()
        self.discarded = False
        self.composed: dict[tuple[str, ...], DictConfig] = {}

    def __reduce__(self) -> tuple[type[Jobs], tuple[()]]:
        """Pickle an empty list: launchers send this function to processes that each train one job."""
        return Jobs, ()

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
            if not self.sweeping and not self.prepare_only:
                check_devices(config)
            if not self.sweeping:
                check_composed(config)
            run = self.prepare(config)
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
            _print_finished(run)
        else:
            print(f"run directory  {run.directory}", flush=True)
            code, _ = launcher.train(run)
            if code == launcher.INTERRUPTED:
                raise KeyboardInterrupt
            if code == launcher.IN_USE:
                self.in_use[run.directory] = f"{run.directory} is in use by another process"
            if code == launcher.REFUSED and not self.sweeping:
                self.discard(run)
                return None
        if not self.sweeping and _is_offline(run):
            _print_wandb_sync(run.directory, "", Console(soft_wrap=True))
        return score(run)

    def prepare(self, config: DictConfig) -> Run:
        """Create the run directory of a job.

        In a sweep, a run that another process uses is recorded in `in_use`, so that the others continue.

        Raises:
            UserError: if the configuration cannot be trained.
        """
        _check(config)
        if not directory.run_of(config).directory.exists():
            self.created.add(directory.run_of(config).directory)
        try:
            run = directory.prepare(config)
        except InUseError as error:
            if not self.sweeping:
                raise
            run = directory.run_of(config)
            self.in_use[run.directory] = str(error)
        self.runs[run.directory] = run
        return run

    def discard(self, run: Run) -> None:
        """Forget a run that was refused before training; remove its directory if this command created it."""
        self.discarded = True
        del self.runs[run.directory]
        if run.directory in self.created:
            run.discard()

    def compose(self, loader: ConfigLoader, sweep: DictConfig, overrides: Sequence[str]) -> DictConfig:
        """Return the resolved configuration of a job of a sweep, composed once for sweeper and launcher.

        Args:
            loader: Hydra's loader of configurations.
            sweep: configuration of the sweep.
            overrides: overrides of the job.

        Raises:
            HydraException, OmegaConfBaseException: at a wrong override.
            UserError: if a setting has a value that is not allowed.
        """
        key = tuple(overrides)
        if key not in self.composed:
            self.composed[key] = resolve(loader.load_sweep_config(sweep, accept([*overrides])))
        return self.composed[key]

    def expect(self, configs: Sequence[DictConfig]) -> None:
        """Record the runs of a sweep before they start, perhaps in other processes.

        Raises:
            UserError: if a configuration cannot be trained, or two of them are the same run.
        """
        expected: dict[Path, DictConfig] = {}
        for config in configs:
            _check(config)
        self.sweeping = True
        for config in configs:
            run = directory.run_of(config)
            first = expected.setdefault(run.directory, config)
            if first != config:
                raise UsageError(_same_run(run, first, config))
            self.runs[run.directory] = run

    def state(self, run: Run) -> str:
        """Return one of `STATES`."""
        return "in use" if run.directory in self.in_use else state(run)

    def exit_code(self) -> int:
        """Return 1 if a job failed or is in use, else `INTERRUPTED` if one is not finished, else 0.

        2 if a single job was refused.
        """
        if self.discarded:
            return launcher.REFUSED
        states = {self.state(run) for run in self.runs.values()}
        if states & {"failed", "in use"}:
            return 1
        return 0 if states <= {"finished"} else launcher.INTERRUPTED

    def print_table(self, console: Console) -> None:
        """Print the state of every job, the errors of failed jobs, and the command to synchronise W&B."""
        ordered = sorted(self.runs.values(), key=lambda run: STATES.index(self.state(run)))
        folder = Path(os.path.commonpath([run.directory.parent for run in ordered]))
        monitors = dict.fromkeys(_monitor(run) for run in ordered if run.config.is_file())
        table = Table("run", "state", *monitors, "time", title=Text(_relative(folder)))
        for column in table.columns:
            column.overflow = "fold"  # a truncated path cannot be opened
        for column in table.columns[2:]:
            column.justify = "right"
        for run in ordered:
            value = score(run)
            numbers = ["" if value is None or name != _monitor(run) else f"{value:.4f}" for name in monitors]
            name = Text(str(run.directory.relative_to(folder)))
            table.add_row(name, self.state(run), *numbers, duration(run))
        console.print(table)
        for run in ordered:
            if run.directory in self.in_use:
                console.print(f"{'in use':12} {self.in_use[run.directory]}", highlight=False, markup=False)
            elif state(run) == "failed" or run.read_result().get("error") or _notes(run):
                console.print(describe(run), highlight=False, markup=False)
        folders = dict.fromkeys(run.directory.parent for run in ordered if _is_offline(run))
        for folder in folders:
            _print_wandb_sync(folder, "*/", console)


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
    """Describe the settings in which two jobs with the same run directory differ."""
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


def state(run: Run) -> str:
    """Return one of `STATES`. Only for runs without a worker: a status of "running" is from a killed one."""
    status: str = run.read_result().get("status", "waiting")
    return "waiting" if status == "running" else status


def score(run: Run) -> float | None:
    """Return the monitored metric (`checkpoint.monitor`) of a finished run, else None."""
    if state(run) != "finished":
        return None
    value: float | None = run.read_result()["metrics"].get(_monitor(run))
    return value


def duration(run: Run) -> str:
    """Return the training time of a finished run, such as 1:02:05 or 1:02."""
    seconds = run.read_result().get("seconds") if state(run) == "finished" else None
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def describe(run: Run) -> str:
    """Return one line with the state of a run, and its score or its error."""
    error = run.read_result().get("error")
    parts = [f"{state(run):12} {_relative(run.directory)}" + ("" if error is None else f": {error}")]
    value = score(run)
    if value is not None:
        parts += [f"{_monitor(run)} {value:.4f}", duration(run)]
    return "  ".join(filter(None, [*parts, _notes(run)]))


def _notes(run: Run) -> str:
    """Return what a finished run lacks, and which files of its data changed; empty if neither."""
    return "  ".join(filter(None, [_deleted(run), _changed(run)]))


def _deleted(run: Run) -> str:
    """Return a note on the outputs of a finished run that were deleted; empty if it has all of them."""
    missing = run.missing_outputs() if state(run) == "finished" else []
    return f"{', '.join(missing)} deleted: force=true trains it again" if missing else ""


def _changed(run: Run) -> str:
    """Return a note on the data files of a finished run that changed after it started; empty if none did."""
    result = run.read_result() if state(run) == "finished" else {}
    files = changed_files(result.get("data"))
    if not files:
        return ""
    return (
        f"{' and '.join(files)} changed since this run was started: force=true trains it again, and "
        "name=NAME trains another run on the changed data"
    )


def _monitor(run: Run) -> str:
    return str(run.read_config().checkpoint.monitor)


def _relative(path: Path) -> str:
    """Return a path relative to the current folder, if it is in there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _is_offline(run: Run) -> bool:
    """Return whether W&B has logged the run only to its directory."""
    return any(run.directory.glob("wandb/offline-run-*"))


def _print_wandb_sync(folder: Path, runs: str, console: Console) -> None:
    """Print the command that uploads the W&B logs of a run directory, or of the ones in a folder."""
    command = f"wandb sync {shlex.quote(_relative(folder))}/{runs}wandb/offline-run-*"
    console.print(command, highlight=False, markup=False)


def _print_finished(run: Run) -> None:
    print(f"already finished: {'  '.join(filter(None, [str(run.directory), _deleted(run)]))}")
    if changed := _changed(run):
        print(changed)
    metrics: dict[str, Any] = run.read_result()["metrics"]
    for name, value in metrics.items():
        print(f"  {name:24} {value:.4f}")
    print("force=true trains it again; the logger and other settings of output do not make another run")
