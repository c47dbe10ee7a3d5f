"""Ctrl-C and SIGTERM: a command ends with one line and exit code 75, at any moment."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from attnlab.errors import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM)
RETRY_SECONDS = 0.05
MESSAGE = "attnlab: interrupted"

Handler = Callable[[int, FrameType | None], Any]


class Interruption:
    """Record of a stop signal inside `interruptible`."""

    happened = False


@contextmanager
def exit_at_once() -> Iterator[None]:
    """End the process at a stop signal inside the block, which imports modules and writes no files.

    An exception in the middle of an import can be lost, or be replaced by another one, in a compiled module.
    """
    with _handling(_exit):
        yield


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Raise KeyboardInterrupt at a stop signal inside the block.

    The exception that leaves the block can be a different one, because libraries handle KeyboardInterrupt:
    decide by `Interruption.happened`. Python drops exceptions that are raised inside finalisers or callbacks;
    in this case the signal is sent again.
    """
    interruption = Interruption()

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        interruption.happened = True
        raise KeyboardInterrupt

    def send_again(dropped: Any) -> None:
        if not interruption.happened:
            report_dropped(dropped)
        elif issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)

    report_dropped = sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        with _handling(interrupt, *SIGNALS, signal.SIGALRM):
            yield interruption
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = report_dropped


def ignore() -> None:
    """Ignore stop signals from now on: the command has ended, and Python finalises its modules."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _handling(handler: Handler, *numbers: int) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers or SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, f"{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)
