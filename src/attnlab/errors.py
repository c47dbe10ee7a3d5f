"""Exceptions that commands handle, and what stops a process: signals, exit code and time limit."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 75  # Exit code of an interrupted command; the same command resumes an interrupted run or sweep
ORPHAN_TIMEOUT = 10.0  # Seconds between SIGTERM and SIGKILL for a process whose parent ended

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
"""Signals at which a worker saves a checkpoint and stops. Slurm sends SIGUSR2 before a job's time limit."""


class UserError(Exception):
    """An error that the user can fix: one line that states the problem and the fix.

    Commands print the message without a stack trace and exit with 1. Any other exception is a bug.
    """


class UsageError(UserError):
    """A `UserError` in the command line itself: an option, an override or a value. Commands exit with 2."""


class InUseError(UserError):
    """Another process works on the run directory."""


class InterruptedRunError(BaseException):
    """The run was interrupted by a signal, and the same command resumes it.

    Derived from BaseException, as KeyboardInterrupt is, so that no `except Exception` handles it as an error.
    """


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """Raise the failed import of another package inside the block as `UserError`.

    Args:
        extra: group of optional dependencies that contains the package.
        purpose: start of the message, such as "hydra/sweeper=optuna needs Optuna".
    """
    try:
        yield
    except ImportError as error:
        if str(error.name).startswith("attnlab"):
            raise
        raise UserError(f"{purpose}: pip install 'attnlab[{extra}]'") from error
