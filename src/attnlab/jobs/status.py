"""State and result of runs, in lines and in the table that ends a sweep. Imports no torch."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlab.files.digests import changed_files
from attnlab.files.run_directory import Run
from attnlab.files.terminal import print_line

STATES = ("finished", "failed", "interrupted", "in use", "waiting")
"""States of a job after its sweep ended: another process uses it, or it never started and is waiting."""


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
    reason = "" if error is None else f": {' '.join(str(error).splitlines())}"
    parts = [f"{state(run):12} {_relative(run.directory)}{reason}"]
    value = score(run)
    if value is not None:
        parts += [f"{_monitor(run)} {value:.4f}", duration(run)]
    return "  ".join(filter(None, [*parts, _deleted(run), _changed(run)]))


def print_finished(run: Run) -> None:
    """Print the scores of a run that was already finished, and what changed since then."""
    print(f"already finished: {'  '.join(filter(None, [str(run.directory), _deleted(run)]))}")
    if changed := _changed(run):
        print(changed)
    metrics: dict[str, Any] = run.read_result()["metrics"]
    for name, value in metrics.items():
        print(f"  {name:24} {value:.4f}")
    print(
        "to train it again, add force=true; settings of output, such as the logger, do not make another run"
    )


def print_table(runs: Sequence[Run], in_use: Mapping[Path, str], console: Console) -> None:
    """Print the state of every job, the errors of failed jobs, and the command to synchronise W&B."""
    states = {run: "in use" if run.directory in in_use else state(run) for run in runs}
    runs = sorted(runs, key=lambda run: STATES.index(states[run]))
    folder = Path(os.path.commonpath([run.directory.parent for run in runs]))
    monitors = dict.fromkeys(_monitor(run) for run in runs if run.config.is_file())
    table = Table("run", "state", *monitors, "time", title=Text(_relative(folder)))
    for column in table.columns:
        column.overflow = "fold"  # a truncated path cannot be opened
    for column in table.columns[2:]:
        column.justify = "right"
    for run in runs:
        value = score(run)
        numbers = ["" if value is None or name != _monitor(run) else f"{value:.4f}" for name in monitors]
        name = Text(str(run.directory.relative_to(folder)))
        table.add_row(name, states[run], *numbers, duration(run))
    console.print(table)
    for run in runs:
        if run.directory in in_use:
            print_line(f"{'in use':12} {in_use[run.directory]}", console=console)
        elif states[run] == "failed" or run.read_result().get("error") or _deleted(run) or _changed(run):
            print_line(describe(run), console=console)
    for folder in dict.fromkeys(run.directory.parent for run in runs if is_offline(run)):
        print_wandb_sync(folder, "*/", console)


def is_offline(run: Run) -> bool:
    """Return whether W&B has logged the run only to its directory."""
    return any(run.directory.glob("wandb/offline-run-*"))


def print_wandb_sync(folder: Path, runs: str, console: Console | None = None) -> None:
    """Print the command that uploads the W&B logs of a run directory, or of the ones in a folder."""
    print_line(f"wandb sync {shlex.quote(_relative(folder))}/{runs}wandb/offline-run-*", console=console)


def _deleted(run: Run) -> str:
    """Return a note on the outputs of a finished run that were deleted; empty if it has all of them."""
    missing = run.missing_outputs() if state(run) == "finished" else []
    return f"{', '.join(missing)} deleted; to train it again, add force=true" if missing else ""


def _changed(run: Run) -> str:
    """Return a note on the data files of a finished run that changed after it started; empty if none did."""
    files = changed_files(run.read_result().get("data")) if state(run) == "finished" else []
    if not files:
        return ""
    return (
        f"{' and '.join(files)} changed since this run was started: to train it again, add force=true; "
        "name=NAME trains another run on the changed data"
    )


def _monitor(run: Run) -> str:
    return str(run.read_config().checkpoint.monitor)


def _relative(path: Path) -> str:
    """Return a path relative to the current folder, if it is in there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
