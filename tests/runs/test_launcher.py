"""Environment and end of worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.runs import launcher
from attnlab.runs.directory import Run


@pytest.mark.parametrize(
    ("code", "stopping", "status", "exit_code", "error"),
    [
        (0, False, "finished", 0, None),
        (-9, False, "finished", 0, None),  # killed after it finished
        (75, False, "interrupted", 75, None),
        (1, False, "failed", 1, "another error"),
        (3, False, "running", 1, "ended with exit code 3, see "),
        (-9, False, "running", 1, "killed by SIGKILL"),
        (-15, True, "running", 75, None),
        (1, True, "running", 75, None),
        (1, True, "failed", 1, "another error"),
    ],
)
def test_settle_records_the_end_of_a_worker(
    code: int, stopping: bool, status: str, exit_code: int, error: str | None, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    run.write_result(status, **({"error": error} if status == "failed" else {}))  # type: ignore[arg-type]
    assert launcher.settle(run, code, stopping=stopping) == exit_code
    expected = {0: "finished", 1: "failed", 75: "interrupted"}[exit_code]
    assert run.read_result()["status"] == expected
    assert (run.read_result().get("error") or "").startswith(error or "")


def test_process_ends_if_its_parent_ended_before_the_check() -> None:
    code = "from attnlab.runs.launcher import die_with_parent; die_with_parent(); print('alive')"
    for parent, survives in ((os.getpid(), True), (os.getppid(), False)):
        environment = {**os.environ, "ATTNLAB_PARENT": str(parent)}
        completed = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert completed.stdout == ("alive\n" if survives else "")
        assert completed.returncode == (0 if survives else -signal.SIGTERM)


def test_worker_does_not_inherit_distributed_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    environment = launcher.worker_environment()
    assert "LOCAL_RANK" not in environment
    assert environment["ATTNLAB_PARENT"] == str(os.getpid())
