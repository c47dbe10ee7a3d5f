"""Training in a worker process, with its progress on standard output. Imports no torch."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from attnlab.config.compose import as_list, compose_run, usage_errors
from attnlab.errors import INTERRUPTED, UsageError, UserError
from attnlab.files.run_directory import Run, prepare_run, run_of
from attnlab.jobs import worker_process
from attnlab.jobs.ledger import check_job
from attnlab.jobs.status import state
from attnlab.jobs.worker_process import Worker

POLL_INTERVAL = 0.1
"""Seconds between two checks of the files of the worker."""


def train(overrides: Sequence[str] = (), *, progress: bool = True) -> Run:
    """Train one run in a worker process, as `attnlab train` does, and return it.

    A finished run is returned at once, and an interrupted one is resumed: see `attnlab train`.

    Args:
        overrides: settings, as on the command line: `["attention=dot", "seed=1"]`.
        progress: print the messages of the training; a notebook also shows the current step and loss.

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
    code, _ = worker_process.train_in_worker(
        run, wait=Progress(run).wait if progress else Worker.wait, to_log=True
    )
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


class Progress:
    """Prints the log messages of a run and, in a notebook, updates a line with its step and loss."""

    def __init__(self, run: Run) -> None:
        self.log = Tail(run.log)
        self.metrics = Tail(run.metrics)
        self.line: Any = None
        if Console().is_jupyter:
            from IPython.display import display

            self.line = display(  # type: ignore[no-untyped-call]
                {"text/plain": "starting"}, raw=True, display_id=True
            )

    def wait(self, worker: Worker) -> int:
        """Show the progress until the worker ends; return its exit code."""
        while (code := worker.poll()) is None:
            self.show()
            time.sleep(POLL_INTERVAL)
        self.show()
        return code

    def show(self) -> None:
        """Print the messages since the last call, and the current step."""
        for line in self.log.lines():
            if " INFO attnlab" in line or " WARNING attnlab" in line or " ERROR attnlab" in line:
                print(line.split(": ", 1)[1], flush=True)
        losses = [line for line in self.metrics.lines() if ",train/loss," in line]
        if losses and self.line is not None:
            _, step, _, loss = losses[-1].split(",")
            self.line.update(
                {"text/plain": f"step {int(step) + 1:,} · train/loss {float(loss):.4g}"}, raw=True
            )


class Tail:
    """Reads the lines that are appended to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """Return the complete lines that were appended since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            self.position = min(self.position, os.fstat(file.fileno()).st_size)  # the file was truncated
            file.seek(self.position)
            complete, newline, _ = file.read().rpartition(b"\n")
        self.position += len(complete) + len(newline)
        return complete.decode("utf-8", errors="replace").split("\n") if newline else []
