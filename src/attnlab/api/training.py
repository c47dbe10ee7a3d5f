"""Training in a worker process, with its progress on standard output. Imports no torch."""

import os
import re
from collections.abc import Callable, Sequence

from attnlab.config.compose import as_list, compose_run, usage_errors
from attnlab.errors import INTERRUPTED, UsageError, UserError
from attnlab.files.run_directory import Run, prepare_run, run_of
from attnlab.jobs import worker_process
from attnlab.jobs.ledger import check_job
from attnlab.jobs.status import state


def train(overrides: Sequence[str] = (), *, progress: bool = True) -> Run:
    """Train one run in a worker process, as `attnlab train` does, and return it.

    A finished run is returned at once, and an interrupted one is resumed: see `attnlab train`.

    Args:
        overrides: settings, as on the command line: `["attention=dot", "seed=1"]`.
        progress: print the messages of the training.

    Raises:
        UserError: if a setting is wrong or the training fails.
        KeyboardInterrupt: if it is interrupted; the same call resumes it.
    """
    with usage_errors():
        config = compose_run(as_list(overrides))
    check_job(config)
    created = not run_of(config).directory.exists()
    run = prepare_run(config)
    if state(run) == "finished":
        return run
    if progress:
        print(f"run directory  {run.directory}", flush=True)
    os.environ["ATTNLAB_COMMAND"] = f"attnlab.train({list(overrides)!r})"
    report = _printing_log(run) if progress else lambda: None
    code = worker_process.train_in_worker(run, report=report, to_log=True)
    if code == INTERRUPTED:
        raise KeyboardInterrupt(f"{run.directory} was interrupted; the same call resumes it")
    if code == worker_process.REFUSED:
        refused = UsageError(run.read_result()["error"])
        if created:
            run.discard()
        raise refused
    if code != 0:
        raise UserError(f"{run.directory} failed: {run.read_result().get('error')}")
    return run


def _printing_log(run: Run) -> Callable[[], None]:
    """Return a function that prints the new messages of a run's log."""
    position = run.log.stat().st_size if run.log.exists() else 0

    def report() -> None:
        nonlocal position
        with run.log.open("rb") as file:
            file.seek(position)
            lines = file.readlines()
            position = file.tell()
        for line in (line.decode(errors="replace").rstrip("\n") for line in lines):
            if re.search(" (INFO|WARNING|ERROR) attnlab", line):
                print(line.split(": ", 1)[1], flush=True)

    return report
