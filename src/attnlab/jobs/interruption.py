"""Ctrl-C and SIGTERM: commands and workers end with exit code 75, at any moment."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from attnlab.errors import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY_SECONDS = 0.05  # Time after which a signal is sent again if Python dropped the exception
SWALLOWED_SECONDS = 2.0
"""Time after which a signal is sent again if the block still runs: something handled the exception."""
MESSAGE = "attnlab: interrupted"

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def handle_signals(handler: Handler, numbers: Sequence[signal.Signals] = SIGNALS) -> Iterator[None]:
    """Handle these signals by this function inside the block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def interruptible(
    exception: type[BaseException] = KeyboardInterrupt, numbers: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Leave the block with this exception at a stop signal.

    Any exception that leaves the block after the signal becomes this one, because libraries replace
    exceptions. Python drops those that are raised inside finalisers or callbacks, and a bare `except`
    swallows them; in these cases the signal is sent again.
    """
    happened = False

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal happened
        happened = True
        signal.setitimer(signal.ITIMER_REAL, SWALLOWED_SECONDS)
        raise exception

    def send_again(dropped: Any) -> None:
        if not happened:
            report_dropped(dropped)
        elif issubclass(dropped.exc_type, exception):
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)

    report_dropped = sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        with handle_signals(interrupt, (*numbers, signal.SIGALRM)):
            yield
    except BaseException:
        if happened:
            raise exception from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = report_dropped


def ignore_signals() -> None:
    """Ignore stop signals from now on: the command has ended, and Python finalises its modules."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def exit_at_once(number: int, frame: FrameType | None) -> NoReturn:
    """End the process at a stop signal, while it imports modules and writes no files."""
    os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)
