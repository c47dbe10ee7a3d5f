"""The runs of a sweep: which there are, who works on them, and how the sweep ended. Imports no torch."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnlab.errors import INTERRUPTED, InUseError, UsageError
from attnlab.files.run_directory import Run, prepare_run, run_of
from attnlab.files.run_identity import flatten
from attnlab.files.terminal import print_line
from attnlab.jobs.status import STATES, Status, read_status, relative
from attnlab.jobs.worker_process import kill, start_supervised, worker_environment
from attnlab.metrics.registry import metric


class Ledger:
    """The runs of a sweep by directory. Their states are read from there, whatever process trained them."""

    def __init__(self) -> None:
        self.runs: dict[Path, Run] = {}

    def expect(self, configs: Sequence[DictConfig]) -> None:
        """Record runs before they start, perhaps in other processes."""
        expected: dict[Path, DictConfig] = {}
        for config in configs:
            check_job(config)
        for config in configs:
            run = run_of(config)
            first = expected.setdefault(run.directory, config)
            if first != config:
                one, other = flatten(first), flatten(config)
                names = ", ".join(name for name in one | other if one.get(name) != other.get(name))
                raise UsageError(
                    f"{names}: a sweep over a setting that does not change results, both jobs are the run "
                    f"{run.directory.name}: give one value"
                )
        errors = find_build_errors([*expected.values()])
        if errors:
            raise UsageError(_not_built(errors, len(expected)))
        self.runs |= {directory: Run(directory) for directory in expected}

    def prepare(self, config: DictConfig) -> Run:
        """Create the run directory of a job, unless another process uses it, and record the run."""
        check_job(config)
        run = run_of(config)
        self.runs[run.directory] = run
        try:
            prepare_run(config)
        except InUseError:
            if config.force:
                raise
        return run

    def forget(self, configs: Sequence[DictConfig]) -> None:
        """Remove the runs of trials that ended: a failed trial is no failure of the search."""
        for config in configs:
            self.runs.pop(run_of(config).directory, None)

    def end(self, console: Console | None = None) -> int:
        """Print the state of every run, and what to know of it; returns the exit code of the sweep.

        It is 1 if a run failed or is in use, else `INTERRUPTED` if one is not finished, else 0.
        """
        jobs = sorted(map(read_status, self.runs.values()), key=lambda job: STATES.index(job.state))
        if any(directory.is_dir() for directory in self.runs):
            _print_table(jobs, console or Console(soft_wrap=True))
        states = {job.state for job in jobs}
        return 1 if states & {"failed", "in use"} else 0 if states <= {"finished"} else INTERRUPTED


def _print_table(jobs: Sequence[Status], console: Console) -> None:
    folder = Path(os.path.commonpath([job.run.directory.parent for job in jobs]))
    monitors = dict.fromkeys(job.monitor for job in jobs if job.monitor)
    table = Table("run", "state", *monitors, "time", title=Text(relative(folder)))
    for column in table.columns:
        column.overflow = "fold"  # a truncated path cannot be opened
    for column in table.columns[2:]:
        column.justify = "right"
    for job in jobs:
        scores = [
            "" if job.score is None or name != job.monitor else metric(name).with_unit(job.score)
            for name in monitors
        ]
        name = Text(str(job.run.directory.relative_to(folder)))
        table.add_row(name, job.state, *scores, job.duration)
    console.print(table)
    for job in jobs:
        if job.result.get("error") or job.note:
            print_line(job.describe(), console=console)


def check_job(config: DictConfig) -> None:
    """Raise `UsageError` at a setting that a run cannot have."""
    for name in ("attention_override", "explain"):
        if (value := config.get(name)) is not None:
            option = value if isinstance(value, str) else "OPTION"
            raise UsageError(f"{name} is a setting of attnlab evaluate: attnlab evaluate RUN {name}={option}")


def find_build_errors(configs: Sequence[DictConfig]) -> dict[Path, str]:
    """Return the errors of jobs that cannot be built, by run directory; see `attnlab.jobs.preflight`.

    A single job is not checked, since it would fail just as fast; nor are jobs that have trained before.
    """
    runs = {run_of(config): OmegaConf.to_container(config, resolve=True) for config in configs}
    fresh = {run.directory: config for run, config in runs.items() if not run.last.is_file()}
    if len(fresh) < 2:
        return {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "configs.json").write_text(json.dumps([*fresh.values()]))
        command = [sys.executable, "-m", "attnlab.jobs.preflight", name]
        with start_supervised(command, worker_environment(), stdout=subprocess.DEVNULL) as check:
            try:
                check.wait()
            finally:
                kill(check)
        if not (folder / "errors.json").is_file():
            return {}  # perhaps a part of the user's ended the process
        errors = json.loads((folder / "errors.json").read_text())
    return {run: error for run, error in zip(fresh, errors, strict=True) if error is not None}


def _not_built(errors: dict[Path, str], count: int) -> str:
    runs: dict[str, list[str]] = {}
    for run, error in errors.items():
        runs.setdefault(error, []).append(run.name)
    described = "; ".join(
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}: {error}"
        for error, names in runs.items()
    )
    return f"{len(errors)} of {count} jobs cannot be built, and no job was started. {described}"
