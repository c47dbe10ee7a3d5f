"""The jobs of one `attnlab train`: a single run, or all runs of a sweep. Imports no torch."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlab.errors import UserError
from attnlab.runs import directory, launcher
from attnlab.runs.directory import Run

STATES = ("finished", "failed", "interrupted", "waiting")
"""How a job may stand when its sweep has ended; the last is of those that were not started."""


class FailedRunError(Exception):
    """A run on a cluster did not finish."""


class Jobs:
    """What Hydra calls with each composed configuration, and remembers the runs they are.

    How each of them stands is read from its directory, whoever trained it.
    """

    def __init__(self) -> None:
        self.runs: dict[Path, Run] = {}
        self.sweeping = False
        self.refused: UserError | None = None
        """What is wrong with the only job: raised through Hydra it would be told twice."""
        self.process = os.getpid()

    def __call__(self, config: DictConfig) -> float | None:
        """Train a job's run here and now, unless it is finished.

        A run that fails says so in its directory: raised here, it would end the whole sweep it belongs to.

        Returns:
            The value of what its checkpoints are chosen by, for a sweeper that searches; None if it failed.

        Raises:
            KeyboardInterrupt: if it was asked to stop, which no further job shall follow.
            FailedRunError: if it failed in a process of a cluster, from where nothing but an error gets back.
        """
        self.sweeping = HydraConfig.get().mode == RunMode.MULTIRUN
        try:
            run = self.prepare(config)
        except UserError as error:
            if self.sweeping:
                raise
            self.refused = error
            return None
        if state(run) == "finished":
            _print_finished(run)
        else:
            print(f"run directory  {run.directory}", flush=True)
            code = launcher.train(run)
            if code != 0 and os.getpid() != self.process:
                raise FailedRunError(describe(run))
            if code == launcher.INTERRUPTED:
                raise KeyboardInterrupt
        return score(run)

    def prepare(self, config: DictConfig) -> Run:
        """The run of a job, with its directory made.

        Raises:
            UserError: if the configuration is not one to train.
        """
        if config.attention_override is not None:
            raise UserError(
                "attention_override is for a trained run: attnlab evaluate RUN "
                f"attention_override={config.attention_override}"
            )
        run = directory.prepare(config)
        self.runs[run.directory] = run
        return run

    def exit_code(self) -> int:
        """1 if a job failed, else `INTERRUPTED` if one is not finished, else 0."""
        states = {state(run) for run in self.runs.values()}
        if "failed" in states:
            return 1
        return 0 if states <= {"finished"} else launcher.INTERRUPTED

    def print_table(self, console: Console) -> None:
        """How every job of the sweep stands, why those failed that did, and what there is to sync."""
        ordered = sorted(self.runs.values(), key=lambda run: STATES.index(state(run)))
        folder = Path(os.path.commonpath([run.directory.parent for run in ordered]))
        monitors = dict.fromkeys(_monitor(run) for run in ordered)
        table = Table("run", "state", *monitors, "time", title=Text(_short(folder)))
        table.columns[0].overflow = "fold"  # a path cut short cannot be opened
        for column in table.columns[2:]:
            column.justify = "right"
        for run in ordered:
            values = [score(run) if monitor == _monitor(run) else None for monitor in monitors]
            numbers = ["" if value is None else f"{value:.4f}" for value in values]
            table.add_row(Text(str(run.directory.relative_to(folder))), state(run), *numbers, time(run))
        console.print(table)
        for run in ordered:
            if state(run) == "failed":
                console.print(describe(run), highlight=False, markup=False)
        offline = dict.fromkeys(
            run.directory.parent for run in ordered if any(run.directory.glob("wandb/offline-run-*"))
        )
        for parent in offline:
            command = f"wandb sync {shlex.quote(_short(parent))}/*/wandb/offline-run-*"
            console.print(command, highlight=False, markup=False)


def state(run: Run) -> str:
    """One of `STATES`. Nothing runs any more when this is asked: what still says so was cut off."""
    status: str = run.read_result().get("status", "waiting")
    return "waiting" if status == "running" else status


def score(run: Run) -> float | None:
    """What a finished run's checkpoints are chosen by."""
    value: float | None = run.read_result().get("metrics", {}).get(_monitor(run))
    return value if state(run) == "finished" else None


def time(run: Run) -> str:
    """How long a finished run trained."""
    seconds = run.read_result().get("seconds") if state(run) == "finished" else None
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def describe(run: Run) -> str:
    """A line on how a run stands, with its score or its reason."""
    start = f"{state(run):12} {_short(run.directory)}"
    if state(run) == "failed":
        return f"{start}: {run.read_result().get('error', '')}"
    value = score(run)
    return start if value is None else f"{start}  {_monitor(run)} {value:.4f}  {time(run)}"


def _monitor(run: Run) -> str:
    return str(run.read_config().checkpoint.monitor)


def _short(path: Path) -> str:
    """As seen from the current folder, if it lies in there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _print_finished(run: Run) -> None:
    print(f"finished already: {run.directory}")
    metrics: dict[str, Any] = run.read_result()["metrics"]
    for name, value in metrics.items():
        print(f"  {name:24} {value:.4f}")
    print("force=true starts over")
