"""Who may work in a run directory."""

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
    if os.fork() == 0:  # as a data loader is
        time.sleep(30)
    print(os.getpid(), flush=True)
    time.sleep(30)
"""


def hold(directory: Path, *before: str) -> subprocess.Popen[str]:
    """A process that holds a directory and has a child that outlives it, once it does."""
    return subprocess.Popen(
        [*before, sys.executable, "-c", HOLD, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_directory_is_held_by_one_process_until_it_is_gone(tmp_path: Path) -> None:
    holder = hold(tmp_path)
    assert holder.stdout is not None
    try:
        pid = int(holder.stdout.readline())
        message = f"is in use by process {pid} on {socket.gethostname()}: wait until it ends, or stop it"
        with pytest.raises(UserError, match=message), Run(tmp_path).lock():
            pass
        os.kill(pid, signal.SIGKILL)
        holder.wait()
        with Run(tmp_path).lock():  # though its child still lives
            assert (tmp_path / "lock").read_text().split()[1] == str(os.getpid())
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()


@pytest.mark.slow
def test_a_process_whose_starter_is_gone_is_waited_for(tmp_path: Path) -> None:
    starter = hold(tmp_path, "sh", "-c", '"$@" & wait', "sh")
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    stopping = subprocess.Popen(["sh", "-c", f"sleep 1; kill {pid}"])
    try:
        asked = time.monotonic()
        with Run(tmp_path).lock():
            assert time.monotonic() - asked > 0.5
    finally:
        stopping.wait()
        os.killpg(starter.pid, signal.SIGKILL)
        starter.stdout.close()


def test_force_clears_all_that_was_left(composed: Callable[..., DictConfig]) -> None:
    config = composed()
    run = prepare(config)
    run.write_result("finished")
    run.checkpoints.mkdir()
    run.best.write_bytes(b"")
    assert prepare(config).read_result() == {"status": "finished"}
    config.force = True
    prepare(config)
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "lock"]


def test_how_often_a_run_is_saved_is_not_which_run_it_is(composed: Callable[..., DictConfig]) -> None:
    config = composed()
    before = identify(config)
    config.checkpoint.every_minutes = 1
    assert identify(config) == before
    config.checkpoint.monitor = "val/bleu"
    assert identify(config) != before


def test_half_written_files_are_removed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints.mkdir()
    kept = run.last
    for path in (kept, run.checkpoints / ".last.ckpt.tmp", tmp_path / ".result.json.7.tmp"):
        path.write_bytes(b"")
    run.remove_temporary_files()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]
