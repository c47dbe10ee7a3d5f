"""Warning of cores that other programs use."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import os, subprocess, sys, time
from attnlab.training.callbacks import progress
from attnlab.training.callbacks.progress import BusyCores

os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
spin = [sys.executable, "-c", "while True: pass"]
others = [subprocess.Popen(spin) for _ in range(int(sys.argv[1]))]
progress.SECONDS = 1.0
callback = BusyCores()
callback.on_train_start(None, None)
end = time.perf_counter() + 1.5
while time.perf_counter() < end:
    callback.on_train_batch_end(None, None, None, None, 0)
for other in others:
    other.kill()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread waited for a core")
def test_threads_that_wait_for_a_core_are_reported_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "3"], capture_output=True, text=True, check=True)
    assert done.stderr.count("other programs use the cores") == 1, done.stderr
