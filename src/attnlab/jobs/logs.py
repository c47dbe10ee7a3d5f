"""Logging and warnings of the commands."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.logging import RichHandler

from attnlab.files.run_directory import Run

log = logging.getLogger("attnlab")

IGNORED_WARNINGS = (
    ".*LeafSpec.* is deprecated",  # raised inside Lightning
    ".*does not have many workers",  # creating batches is cheap
    ".*is not resumable",  # the order of batches is resumable, see attnlab.data.datamodule
    "The .srun. command is available",  # a run may also be started without Slurm
    ".*is smaller than the logging interval",  # the loss is also logged at the end of each epoch
)


def log_to_files(run: Run, *, terminal: bool) -> None:
    """Write all log messages to train.log and, if `terminal`, those of attnlab to the terminal as well."""
    file = logging.FileHandler(run.log, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    log.setLevel(logging.DEBUG)
    root.addHandler(file)
    logging.captureWarnings(True)
    if terminal and not os.path.samestat(os.fstat(sys.stderr.fileno()), run.log.stat()):
        console = Console(stderr=True)
        handler = (
            RichHandler(console=console, show_path=False, show_time=False, show_level=False)
            if console.is_terminal
            else logging.StreamHandler()  # RichHandler wraps and pads lines
        )
        handler.setLevel(logging.INFO)
        log.addHandler(handler)


def quieten_lightning() -> None:
    """Remove the terminal handlers that Lightning adds on import, its tips, and `IGNORED_WARNINGS`."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(_without_tips)
    for message in IGNORED_WARNINGS:
        warnings.filterwarnings("ignore", message)


@contextmanager
def silent_lightning() -> Iterator[None]:
    """Silence what Lightning says of devices and clusters, and `IGNORED_WARNINGS`."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    with warnings.catch_warnings():
        for message in IGNORED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logger.setLevel(level)


def _without_tips(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("💡 Tip")
