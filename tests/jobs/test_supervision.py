"""Processes end with the process that started them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import os, sys, time
from attnlab.jobs.worker_process import start_supervised
start_supervised([sys.executable, "-c", sys.argv[1], sys.argv[2]], os.environ).wait()
"""

CHILD = """
import ctypes, os, signal, sys, threading, time
from pathlib import Path
from attnlab.jobs import worker_process
worker_process.ORPHAN_TIMEOUT = 0.5
folder = Path(sys.argv[1])
with worker_process.end_with_parent():
    if os.fork() == 0:  # like a data loader
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (folder / str(os.getpid())).touch()
        time.sleep(60)
    (folder / str(os.getpid())).touch()
    HANG
"""

HANGS = {
    "a loop with a flag": "signal.signal(15, lambda *_: None); time.sleep(60)",
    "a C call that holds the GIL": "ctypes.PyDLL(None).sleep(60)",
    "the start": "os.kill(os.getppid(), 9); signal.signal(15, signal.SIG_IGN); time.sleep(60)",
}


def alive(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("hang", HANGS)
def test_hung_process_and_its_children_end_with_the_parent(hang: str, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD.replace("HANG", HANGS[hang]), str(tmp_path)]
    )
    deadline = time.monotonic() + 60
    while len(processes := [int(path.name) for path in tmp_path.iterdir()]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if hang != "the start":
        assert all(map(alive, processes))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while any(map(alive, processes)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_process_that_ends_leaves_no_process(tmp_path: Path) -> None:
    """The process that waits for the parent's end must not outlive the block."""
    code = (
        "import os, sys; from attnlab.jobs.worker_process import *; import subprocess\n"
        "with end_with_parent():\n    print(os.environ.get('ATTNLAB_PARENT_PIPE'), flush=True)\n"
        "print(subprocess.run(['ps', '--no-headers', '--ppid', str(os.getpid()), '-o', 'comm'], "
        "capture_output=True, text=True).stdout.split())"
    )
    start = (
        "import os, subprocess, sys; from attnlab.jobs.worker_process import *\n"
        "worker = start_supervised([sys.executable, '-c', sys.argv[1]], os.environ)\n"
        "sys.exit(worker.wait())"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, code], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout == "None\n['ps']\n"


def test_signal_ends_a_process_that_handles_it() -> None:
    """Without a parent that started it, the block changes nothing."""
    code = (
        "import time; from attnlab.jobs.worker_process import *\n"
        "with end_with_parent(): print('in', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "in\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
