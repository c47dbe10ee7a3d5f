"""Warning of cores that other programs use."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from attnlab.training.callbacks import progress
from attnlab.training.callbacks.progress import BusyCores

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


def test_a_thread_that_started_in_the_meantime_has_waited_since_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waited = iter([{"1": 50.0}, {"1": 50.0, "2": 0.9}])
    clock = iter([100.0, 101.0, 103.0])
    monkeypatch.setattr(progress, "waiting_times", lambda: next(waited))
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(progress, "SECONDS", 2.0)
    callback: Any = BusyCores()
    callback.on_train_start(None, None)
    for _ in range(3):
        callback.on_train_batch_end(None, None, None, None, 0)
    assert "threads of this run wait 30 % of the time" in caplog.text
