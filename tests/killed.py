"""Run workers and kill them: `python killed.py RUN_DIR WHEN ... [RUN_DIR WHEN ...]`.

For each WHEN, a worker of the preceding directory is forked. If WHEN is a number n, the worker kills itself
with SIGKILL right before its n-th change to the directory; except for kills inside a single write, these are
all the moments at which a kill can make a difference. If WHEN is `0.1x`, the worker and its child processes
are killed after 0.1 times the seconds that the last undisturbed worker took; if it is `full`, no file may
become larger than `FULL` bytes, as if the disk were full; if it is `never`, the worker is undisturbed. All
workers are forked from one process, so that torch is imported once.

Prints a line for each worker: `killed before os.rename .last.ckpt.tmp`, `killed after 0.7 s`,
`ended with 0 after 99 changes`.
"""

import os
import resource
import signal
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

from attnlab.jobs import worker  # imported once, before the forks
from attnlab.training import recipe

FULL = 20_000
CHANGES = ("open", "os.rename", "os.truncate", "os.remove")


def work(directory: str, when: str) -> None:
    """Run the worker in this process until it ends or is killed."""
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
    if when == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL))
    code = worker.main(directory)
    print(f"ended with {code} after {changes} changes", flush=True)
    os._exit(code)


def run_worker(directory: str, when: str, seconds: float) -> None:
    """Fork a worker in its own process group and wait for it, or kill the group after so many seconds."""
    child = os.fork()
    if child == 0:
        os.setsid()
        work(directory, when)
    deadline = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            print(f"killed after {seconds:.1f} s", flush=True)
            return
        time.sleep(0.005)
    with suppress(ProcessLookupError):  # data loaders whose parent was killed before they first looked at it
        os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # about forking with threads: there are none
    recipe.save_training_curves = lambda *_: None  # it takes longer than the training
    directory, undisturbed = "", float("inf")
    for word in sys.argv[1:]:
        if word == "never":
            started = time.monotonic()
            run_worker(directory, word, float("inf"))
            undisturbed = time.monotonic() - started
        elif word.isdigit() or word == "full":
            run_worker(directory, word, float("inf"))
        elif word[0].isdigit() and word.endswith("x"):
            run_worker(directory, word, float(word[:-1]) * undisturbed)
        else:
            directory = word
