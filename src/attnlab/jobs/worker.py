"""The process that trains one run: `python -m attnlab.jobs.worker RUN_DIR`.

Reads config.yaml, trains, and writes result.json. Each run has its own process, so that CUDA,
distributed training and loggers of one run never affect the next. Under DDP, Lightning starts this same
command for every rank. Exit codes: 0 finished, 1 failed, 2 refused before training because of its settings
or its data, 69 in use by another process, 75 interrupted.
"""

import errno
import logging
import os
import signal
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

from attnlab.errors import INTERRUPTED, STOP_SIGNALS, InterruptedRunError, InUseError, UserError
from attnlab.files.imports import faster_imports
from attnlab.files.run_directory import Run
from attnlab.files.terminal import print_line, replace_standard_streams
from attnlab.files.writing import no_space_left
from attnlab.jobs.interruption import interruptible
from attnlab.jobs.logs import log_to_files, quieten_lightning
from attnlab.jobs.status import print_scores
from attnlab.jobs.worker_process import (
    IN_USE,
    REFUSED,
    end_with_parent,
    import_from_current_folder,
    is_step_of_several_tasks,
)
from attnlab.training.environment import environment, keep_freed_memory, tokenize_in_one_thread

log = logging.getLogger("attnlab")


def main(directory: str) -> int:
    """Train the run in `directory`, unless another process does; returns the exit code."""
    import_from_current_folder()
    tokenize_in_one_thread()
    keep_freed_memory()
    run = Run(Path(directory))
    if not run.config.is_file():
        print(f"attnlab: {directory} is not a run directory: it contains no config.yaml", file=sys.stderr)
        return 1
    first_rank = rank() == 0
    try:
        with end_with_parent(), run.lock() if first_rank else nullcontext():
            return _work(run, first_rank=first_rank)
    except InUseError as error:
        print(f"attnlab: {error}", file=sys.stderr)
        return IN_USE
    except OSError as error:  # of the files in the run directory
        print(f"attnlab: {error}", file=sys.stderr)
        return 1


def rank() -> int:
    """Return the rank that torchrun, Slurm or Lightning gave this process."""
    slurm = ("SLURM_PROCID",) if is_step_of_several_tasks() else ()
    given = [os.environ[name] for name in ("RANK", *slurm, "LOCAL_RANK") if name in os.environ]
    return int(given[0]) if given else 0


def _work(run: Run, *, first_rank: bool) -> int:
    log_to_files(run, terminal=first_rank)
    logging.raiseExceptions = False  # a full disk: no stack trace for every line
    # An interrupted import cannot be repeated: signals are blocked until torch and the rest are imported.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    if first_rank:
        run.remove_temporary_files()
        run.write_result(
            "running", **environment(), command=os.environ.get("ATTNLAB_COMMAND", " ".join(sys.argv))
        )
    # Imported late, so that result.json has the status "running" seconds earlier.
    with faster_imports():
        from attnlab.training.loggers import finish_wandb

    code = _train(run, first_rank=first_rank)
    finish_wandb(code)
    return code


def _train(run: Run, *, first_rank: bool) -> int:
    log.info("importing PyTorch and Lightning")
    try:
        with faster_imports():
            from attnlab.training.recipe import train

        # During training, the callback `LastCheckpoint` handles the signals instead and saves first.
        with interruptible(InterruptedRunError, STOP_SIGNALS):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
            quieten_lightning()
            config = run.read_config()
            scores = train(config, run)
    except InterruptedRunError:
        if first_rank:
            run.write_result("interrupted")
            log.info("interrupted; run the same command again to resume")
        return INTERRUPTED
    except Exception as error:
        message = _describe(error)
        log.error("%s", message)
        log.debug("%s", traceback.format_exc())
        if not isinstance(error, UserError) and not no_space_left(error):
            log.error("the stack trace is in %s", run.log)
        if first_rank:
            run.remove_temporary_files()
            run.write_result("failed", error=message)
        if os.environ.get("ATTNLAB_TRACEBACK"):
            traceback.print_exc()
        return REFUSED if isinstance(error, UserError) and not run.has_started else 1
    if first_rank:
        _print_scores(run, scores)
    return 0


def _describe(error: Exception) -> str:
    if isinstance(error, UserError):
        return str(error)
    if no_space_left(error):
        return f"no space left ({error}): free some, and run the same command again to resume"
    return f"{type(error).__name__}: {error}"


def _print_scores(run: Run, scores: dict[str, float]) -> None:
    print_scores(run, scores)
    print_line(f"figures      {run.figures}")
    print_line(f"predictions  {run.predictions}")
    lost = getattr(sys.stdout.buffer, "lost", None)
    if lost is not None and lost.errno != errno.EIO:  # a closed terminal
        log.warning("%s: the scores are in %s", lost, run.result)


if __name__ == "__main__":
    replace_standard_streams(required=False)  # a run does not depend on what shows its progress
    sys.exit(main(sys.argv[1]))
