"""Progress of the jobs of a sweep, read from their run directories. Imports no torch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from attnlab.files.metrics_file import read_latest
from attnlab.files.run_directory import Run
from attnlab.files.terminal import print_line
from attnlab.metrics.registry import metric

READ_INTERVAL = 1.0
"""Seconds between two readings of the metrics of the jobs."""
LINE_INTERVAL = 60.0
"""Seconds between two lines about a job in output that is not a terminal."""


@dataclass
class JobLine:
    """The line of a running job."""

    bar: TaskID
    monitor: str  # metric that is shown
    epochs: int | None  # number of epochs to train, if it is known
    printed_at: float  # time of the last line in output that is not a terminal
    printed: int = 0  # validated epochs in that line


class SweepProgress:
    """Shows one line per running job on a terminal, and sparse lines elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self.bars = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.total = total
        self.sweep = self.bars.add_task("checking", total=total)
        self.lines: dict[Run, JobLine] = {}
        self.updated_at = 0.0

    def print(self, line: str) -> None:
        """Print a line above the bars."""
        print_line(line, console=self.bars.console)

    def update(self, running: Sequence[Run], *, pending: int, failed: int) -> None:
        """Show the state of the sweep and of its running jobs, at most once per `READ_INTERVAL`."""
        now = time.monotonic()
        if now - self.updated_at < READ_INTERVAL:
            return
        self.updated_at = now
        status = f"{len(running)} running · {pending - len(running)} waiting · {failed} failed"
        self.bars.update(self.sweep, description=status, completed=self.total - pending)
        for run in self.lines.keys() - {*running}:
            self.bars.remove_task(self.lines.pop(run).bar)
        for run in running:
            line = self.lines.get(run) or self._add(run, now)
            latest = read_latest(run.metrics, line.monitor)
            if latest is None:
                continue
            epoch, score = latest[0] + 1, metric(line.monitor).with_unit(latest[1])
            text = f"{run.directory.name}  {line.monitor} {score}"
            self.bars.update(line.bar, description=text, completed=epoch)
            if self.bars.disable and epoch > line.printed and now - line.printed_at >= LINE_INTERVAL:
                line.printed, line.printed_at = epoch, now
                self.print(f"{'epoch':12} {epoch}/{line.epochs or '?'} {text}")

    def _add(self, run: Run, now: float) -> JobLine:
        settings = run.read_settings()
        epochs = settings["trainer"].get("max_epochs")
        epochs = epochs if isinstance(epochs, int) and epochs > 0 else None
        bar = self.bars.add_task(run.directory.name, total=epochs)
        self.lines[run] = JobLine(bar, settings["checkpoint"]["monitor"], epochs, now)
        return self.lines[run]
