"""One run in a process of its own: `python -m attnlab.cli.worker RUN_DIR`.

Reads config.yaml, trains, and writes result.json. A fresh process for each run keeps CUDA, distributed
training and dashboards of one run out of the next; under DDP Lightning starts this same command again for
every rank. Exit codes: 0 finished, 1 failed, 75 interrupted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from attnlab.errors import InterruptedRunError, UserError
from attnlab.runs.directory import Run
from attnlab.runs.environment import environment
from attnlab.runs.launcher import INTERRUPTED, die_with_parent

log = logging.getLogger("attnlab")

SIGNALS = {signal.SIGTERM, signal.SIGINT}


def main(directory: str) -> int:
    """Run the run in `directory`, unless another process does; returns the exit code."""
    die_with_parent()
    run = Run(Path(directory))
    leads = int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0
    try:
        with run.lock() if leads else nullcontext():
            return _work(run, leads=leads)
    except UserError as error:
        print(f"attnlab: {error}", file=sys.stderr)
        return 1


def _work(run: Run, *, leads: bool) -> int:
    _start_logging(run, leads=leads)
    # An import that is broken off cannot be taken up again: a signal waits until torch and the rest are in.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        signal.signal(number, _stop)
    if leads:
        run.remove_temporary_files()
        run.write_result(
            "running", **environment(), command=os.environ.get("ATTNLAB_COMMAND", " ".join(sys.argv))
        )
    # Imported late: result.json says "running" seconds earlier.
    from attnlab.training.loggers import finish_wandb

    code = _train(run, leads=leads)
    finish_wandb(code)
    return code


def _train(run: Run, *, leads: bool) -> int:
    try:
        from attnlab.cli.recipe import train
        from attnlab.config.build import quieten_lightning

        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        quieten_lightning()
        scores = train(run.read_config(), run)
    except InterruptedRunError:
        if leads:
            run.write_result("interrupted")
            log.info("stopped in good order; the same command goes on from here")
        return INTERRUPTED
    except Exception as error:
        told = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        if leads:
            run.write_result("failed", error=told)
        log.error("%s", told)
        log.debug("%s", traceback.format_exc())
        if not isinstance(error, UserError):
            log.error("the stack trace is in %s", run.log)
        if os.environ.get("ATTNLAB_TRACEBACK"):
            traceback.print_exc()
        return 1
    if leads:
        _print_scores(run, scores)
    return 0


def _stop(*_: Any) -> None:
    """Leave at once at a signal. Training, which has something to save, handles it otherwise."""
    raise InterruptedRunError


def _start_logging(run: Run, *, leads: bool) -> None:
    """Everything goes to train.log; what this package says goes to the terminal too."""
    file = logging.FileHandler(run.log, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    log.setLevel(logging.DEBUG)
    root.addHandler(file)
    logging.captureWarnings(True)
    if leads and not _prints_to(run.log):
        terminal = RichHandler(
            console=Console(stderr=True), show_path=False, show_time=False, show_level=False
        )
        terminal.setLevel(logging.INFO)
        log.addHandler(terminal)


def _prints_to(log: Path) -> bool:
    """Whether what would go to the terminal goes to that file already."""
    return os.path.samestat(os.fstat(sys.stderr.fileno()), log.stat())


def _print_scores(run: Run, scores: dict[str, float]) -> None:
    columns: dict[str, dict[str, str]] = {}
    for key, value in scores.items():
        split = "test" if key.startswith("test/") else "validation"
        columns.setdefault(split, {})[key.removeprefix("val/").removeprefix("test/")] = f"{value:.4f}"
    table = Table("score", title=run.directory.name)
    for split in columns:
        table.add_column(split, justify="right")
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        table.add_row(name, *(column.get(name, "") for column in columns.values()))
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(f"pictures     {run.figures}", highlight=False)
    console.print(f"predictions  {run.predictions}", highlight=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
