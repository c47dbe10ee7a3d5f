"""Locks, identity and files of run directories."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from attnlab.errors import UserError
from attnlab.runs.directory import Run, prepare
from attnlab.runs.identity import identify

HOLD = """
import os, sys, time
from pathlib import Path
from attnlab.runs.directory import Run
with Run(Path(sys.argv[1])).lock():
    if os.fork() == 0:  # like a data loader
        time.sleep(30)
    print(os.getpid(), flush=True)
    time.sleep(30)
"""


def hold(directory: Path, *before: str) -> subprocess.Popen[str]:
    """Start a process that holds the lock of a directory and has a child that outlives it."""
    return subprocess.Popen(
        [*before, sys.executable, "-c", HOLD, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_lock_is_held_until_its_process_ends(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    assert holder.stdout is not None
    try:
        pid = int(holder.stdout.readline())
        message = f"is in use by process {pid} on {socket.gethostname()}: wait until it ends, or stop it"
        with pytest.raises(UserError, match=message), Run(tmp_path).lock():
            pass
        os.kill(pid, signal.SIGKILL)
        holder.wait()
        with Run(tmp_path).lock():  # although its child process is alive
            assert (tmp_path / "lock").read_text().split()[1] == str(os.getpid())
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()


@pytest.mark.slow
def test_lock_waits_for_a_process_whose_parent_ended(tmp_path: Path) -> None:
    parent = hold(tmp_path, "sh", "-c", '"$@" & wait', "sh")
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    stopping = subprocess.Popen(["sh", "-c", f"sleep 1; kill {pid}"])
    try:
        start = time.monotonic()
        with Run(tmp_path).lock():
            assert time.monotonic() - start > 0.5
    finally:
        stopping.wait()
        os.killpg(parent.pid, signal.SIGKILL)
        parent.stdout.close()


def test_force_removes_all_earlier_files(composed: Callable[..., DictConfig]) -> None:
    config = composed()
    run = prepare(config)
    run.write_result("finished")
    run.checkpoints.mkdir()
    run.best.write_bytes(b"")
    assert prepare(config).read_result() == {"status": "finished"}
    config.force = True
    prepare(config)
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "lock"]


def test_identity_ignores_the_checkpoint_interval(composed: Callable[..., DictConfig]) -> None:
    config = composed()
    before = identify(config)
    config.checkpoint.every_minutes = 1
    assert identify(config) == before
    config.checkpoint.monitor = "val/bleu"
    assert identify(config) != before


def test_temporary_files_are_removed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints.mkdir()
    kept = run.last
    for path in (kept, run.checkpoints / ".last.ckpt.tmp", tmp_path / ".result.json.7.tmp"):
        path.write_bytes(b"")
    run.remove_temporary_files()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]
