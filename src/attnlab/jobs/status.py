"""State and result of runs, in lines and in the table that ends a sweep. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from attnlab.errors import InUseError
from attnlab.files import terminal
from attnlab.files.digests import changed_files
from attnlab.files.run_directory import Run
from attnlab.metrics.registry import metric

STATES = ("finished", "failed", "interrupted", "in use", "waiting")
"""States of a job after its sweep ended: another process uses it, or it never started and is waiting."""


@dataclass(frozen=True)
class Status:
    """State and result of a run without a worker, read once; see `read_status`."""

    run: Run
    state: str  # one of `STATES`
    result: Mapping[str, Any]  # result.json
    monitor: str  # metric that selects the best checkpoint; "" without a configuration
    note: str = ""  # changed data files of a finished run

    @property
    def score(self) -> float | None:
        """The monitored metric of a finished run, else None."""
        return self.result["metrics"].get(self.monitor) if self.state == "finished" else None

    @property
    def duration(self) -> str:
        """Training time of a finished run, such as 1:02:05 or 1:02."""
        seconds = self.result.get("seconds") if self.state == "finished" else None
        if seconds is None:
            return ""
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"

    def describe(self) -> str:
        """Return one line with the state of the run, and its score or its error."""
        error = self.result.get("error")
        if self.state == "in use":
            return f"{self.state:12} {error}"
        reason = "" if error is None else f": {' '.join(str(error).splitlines())}"
        value = "" if self.score is None else f"{self.monitor} {metric(self.monitor).with_unit(self.score)}"
        state = f"{self.state:12} {relative(self.run.directory)}{reason}"
        return "  ".join(filter(None, [state, value, self.duration, self.note]))


def read_status(run: Run) -> Status:
    """Read the state of a run that this process does not train, and whether another process does."""
    result = run.read_result()
    status: str = result.get("status", "waiting")
    if status != "finished" and run.directory.is_dir():
        try:
            with run.lock():
                status = "waiting" if status == "running" else status  # of a killed worker
        except InUseError as error:
            status, result = "in use", {"error": str(error)}
    monitor = str(run.read_config().checkpoint.monitor) if run.config.is_file() else ""
    return Status(run, status, result, monitor, _changed(result) if status == "finished" else "")


def state(run: Run) -> str:
    """Return one of `STATES`, for a run without a worker."""
    status: str = run.read_result().get("status", "waiting")
    return "waiting" if status == "running" else status


def print_finished(run: Run) -> None:
    """Print the scores of a run that was already finished, and what changed since then."""
    status = read_status(run)
    print(f"already finished: {run.directory}")
    if status.note:
        print(status.note)
    print_scores(run, status.result["metrics"])
    print(
        "to train it again, add force=true; settings of output, such as the logger, do not make another run"
    )


def print_scores(run: Run, scores: Mapping[str, float]) -> None:
    """Print the scores of a finished run, with a column for each split."""
    columns: dict[str, dict[str, str]] = {}
    for score, value in ((metric(name), value) for name, value in scores.items()):
        split = "validation" if score.split == "val" else score.split
        columns.setdefault(split, {})[score.label_with_unit] = score.number(value)
    table = Table("score", title=run.directory.name)
    for split in columns:
        table.add_column(split, justify="right")
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        table.add_row(name, *(column.get(name, "") for column in columns.values()))
    terminal.print_table(table)


def _changed(result: Mapping[str, Any]) -> str:
    files = [*changed_files(result.get("data")), *changed_files(result.get("code"))]
    if not files:
        return ""
    return (
        f"{' and '.join(files)} changed since this run was started: to train it again, add force=true; "
        "name=NAME trains another run on the changed files"
    )


def relative(path: Path) -> str:
    """Return a path relative to the current folder, if it is in there."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
