"""Progress of the jobs of a sweep, read from their run directories. Imports no torch."""

import time

from omegaconf import DictConfig
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
"""Seconds between two readings of the metrics of a job."""
LINE_INTERVAL = 60.0
"""Seconds between two lines about a job in output that is not a terminal."""


class JobProgress:
    """Progress of a job, as its metrics.csv shows it.

    Attributes:
        epoch: number of validated epochs, from 1; 0 before the first validation.
        score: last value of the monitored metric.
    """

    def __init__(self, run: Run, config: DictConfig) -> None:
        epochs = config.trainer.get("max_epochs")
        self.run = run
        self.monitor = str(config.checkpoint.monitor)
        self.epochs = epochs if isinstance(epochs, int) and epochs > 0 else None
        self.epoch = 0
        self.score: float | None = None
        self.read_at = time.monotonic()

    def read(self) -> None:
        """Read metrics.csv, at most once per `READ_INTERVAL`."""
        now = time.monotonic()
        if now - self.read_at < READ_INTERVAL:
            return
        self.read_at = now
        latest = read_latest(self.run.metrics, self.monitor)
        if latest is not None:
            self.epoch, self.score = latest[0] + 1, latest[1]

    def describe(self) -> str:
        """Return `dot-seed0-12345678  val/loss 0.4132`."""
        score = "" if self.score is None else f"  {self.monitor} {metric(self.monitor).with_unit(self.score)}"
        return f"{self.run.directory.name}{score}"


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
        self.sweep = self.bars.add_task("checking", total=total)
        self.lines: dict[JobProgress, TaskID] = {}
        self.printed: dict[JobProgress, tuple[int, float]] = {}  # epoch and time of the last line

    def print(self, line: str) -> None:
        """Print a line above the bars."""
        print_line(line, console=self.bars.console)

    def update(self, running: list[JobProgress], *, ended: int, waiting: int, failed: int) -> None:
        """Show the state of the sweep and of its running jobs."""
        status = f"{len(running)} running · {waiting} waiting · {failed} failed"
        self.bars.update(self.sweep, description=status, completed=ended)
        for job in self.lines.keys() - set(running):
            self.bars.remove_task(self.lines.pop(job))
            self.printed.pop(job, None)
        for job in running:
            if job not in self.lines:
                self.lines[job] = self.bars.add_task(job.describe(), total=job.epochs)
            job.read()
            self.bars.update(self.lines[job], description=job.describe(), completed=job.epoch)
            if self.bars.disable:
                self._print_sparsely(job)

    def _print_sparsely(self, job: JobProgress) -> None:
        """Print the epoch and the score of a job if they are new and its last line is old."""
        now = time.monotonic()
        epoch, printed_at = self.printed.setdefault(job, (0, now))
        if job.epoch > epoch and now - printed_at >= LINE_INTERVAL:
            self.printed[job] = (job.epoch, now)
            self.print(f"{'epoch':12} {job.epoch}/{job.epochs or '?'} {job.describe()}")
