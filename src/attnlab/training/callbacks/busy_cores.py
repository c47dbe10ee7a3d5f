"""Warning of cores that other programs use."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer

log = logging.getLogger(__name__)

SECONDS = 5.0
"""Training time after which the cores are judged."""

BUSY = 0.25
"""Share of the time that a thread waits for a core; on idle cores it is about 0."""


class BusyCores(Callback):
    """Warns once, in the first seconds of training, if threads of this process have to wait for a core.

    Threads that share an operation wait for the slowest of them, so that a step with two threads on busy
    cores takes many times as long as with one.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._since: float | None = time.perf_counter()
        self._before = waiting_times()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self._since is None or (seconds := time.perf_counter() - self._since) < SECONDS:
            return
        self._since = None
        waited = {thread: now - self._before.get(thread, 0.0) for thread, now in waiting_times().items()}
        if (share := max(waited.values(), default=0.0) / seconds) >= BUSY:
            threads = torch.get_num_threads()
            log.warning(
                "other programs use the cores: threads of this run wait %.0f %% of the time for one%s",
                100 * min(share, 1.0),
                "" if threads == 1 else f"; set OMP_NUM_THREADS=1 (now {threads} threads) to lose less",
            )


def waiting_times() -> dict[str, float]:
    """Return the seconds that each thread of this process was ready to run and had no core.

    Empty where the system does not tell (`/proc/*/schedstat` of Linux).
    """
    waited = {}
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            _, nanoseconds, _ = task.read_text(encoding="ascii").split()
        except OSError:  # the thread has ended
            continue
        waited[task.parent.name] = int(nanoseconds) / 1e9
    return waited
