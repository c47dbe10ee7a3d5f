"""The runs of a sweep: which there are, who works on them, and how the sweep ended. Imports no torch."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from attnlab.errors import INTERRUPTED, InUseError, UsageError
from attnlab.files.run_directory import Run, prepare_run, run_of
from attnlab.files.run_identity import flatten
from attnlab.jobs.status import print_table, state
from attnlab.jobs.worker_process import kill, start_supervised, worker_environment


class Ledger:
    """The runs of a sweep by directory. Their states are read from there, whatever process trained them.

    Attributes:
        runs: the runs of all jobs.
        in_use: error messages of the runs that another process works on.
    """

    def __init__(self) -> None:
        self.runs: dict[Path, Run] = {}
        self.in_use: dict[Path, str] = {}

    def expect(self, configs: Sequence[DictConfig]) -> None:
        """Record runs before they start, perhaps in other processes.

        Raises:
            UsageError: if two are equal, or one cannot be built.
        """
        expected: dict[Path, DictConfig] = {}
        for config in configs:
            check_job(config)
        for config in configs:
            run = run_of(config)
            first = expected.setdefault(run.directory, config)
            if first != config:
                raise UsageError(_same_run(run, first, config))
        errors = find_build_errors([*expected.values()])
        if errors:
            raise UsageError(_not_built(errors, len(expected)))
        self.runs |= {directory: Run(directory) for directory in expected}

    def prepare(self, config: DictConfig) -> Run:
        """Create the run directory of a job, unless another process uses it, and record both.

        Raises:
            UserError: if the configuration cannot be trained.
        """
        check_job(config)
        run = run_of(config)
        try:
            prepare_run(config)
        except InUseError as error:
            self.in_use[run.directory] = str(error)
        self.runs[run.directory] = run
        return run

    def forget(self, configs: Sequence[DictConfig]) -> None:
        """Remove the runs of trials that ended: a failed trial is no failure of the search."""
        for config in configs:
            self.runs.pop(run_of(config).directory, None)

    def print_table(self) -> None:
        """Print the state of every run, if there is any."""
        if any(directory.is_dir() for directory in self.runs):
            print_table([*self.runs.values()], self.in_use, Console(soft_wrap=True))

    def exit_code(self) -> int:
        """Return 1 if a run failed or is in use, else `INTERRUPTED` if one is not finished, else 0."""
        states = {state(run) for run in self.runs.values()}
        if "failed" in states or self.in_use:
            return 1
        return 0 if states <= {"finished"} else INTERRUPTED


def check_job(config: DictConfig) -> None:
    """Raise `UsageError` at a setting that a run cannot have."""
    if config.get("attention_override") is not None:
        raise UsageError(
            "attention_override is a setting of attnlab evaluate: attnlab evaluate RUN "
            f"attention_override={config.attention_override}"
        )
    if config.get("explain") is not None:
        raise UsageError("explain is a setting of attnlab evaluate: attnlab evaluate RUN explain=OPTION")


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
