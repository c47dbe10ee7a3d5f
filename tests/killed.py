"""Run workers and kill them: `python killed.py RUN_DIR WHEN ... [RUN_DIR WHEN ...]`.

For each WHEN, fork a worker of the directory before it: one that kills itself with SIGKILL right before its
so-many-th change to the directory, or one that is left alone, where WHEN is `never`. What lies on the disk
only changes at such moments, so they are all the moments at which being killed can make a difference, but for
those inside one write. One process forks all workers, so torch is imported once.

Prints a line for each worker: `killed before os.rename .last.ckpt.tmp`, `ended with 0 after 99 changes`.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path

import attnlab.cli.recipe  # noqa: F401  imported before the forks, to be imported once
from attnlab.cli import worker

CHANGES = ("open", "os.rename", "os.truncate", "os.remove")


def work(directory: str, when: str) -> None:
    """Run the worker in this process, to the end given."""
    inside = str(Path(directory).resolve())
    changes = 0

    def watch(event: str, details: tuple[object, ...]) -> None:
        nonlocal changes
        if event not in CHANGES or not str(details[0]).startswith(inside):
            return
        if event == "open" and not int(str(details[2])) & (os.O_WRONLY | os.O_RDWR):
            return
        changes += 1
        if str(changes) == when:
            print(f"killed before {event} {Path(str(details[0])).name}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    code = worker.main(directory)
    print(f"ended with {code} after {changes} changes", flush=True)
    os._exit(code)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of what a fork may do to threads: there are none
    for word in sys.argv[1:]:
        if word == "never" or word.isdigit():
            child = os.fork()
            if child == 0:
                work(directory, word)  # noqa: F821  a directory comes first
            os.waitpid(child, 0)
        else:
            directory = word
