"""How workers start, end, and are settled."""

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
        (-9, False, "finished", 0, None),  # killed when all was done
        (75, False, "interrupted", 75, None),
        (1, False, "failed", 1, "its own reason"),
        (3, False, "running", 1, "ended with exit code 3, see "),
        (-9, False, "running", 1, "killed by SIGKILL"),
        (-15, True, "running", 75, None),
        (1, True, "running", 75, None),
        (1, True, "failed", 1, "its own reason"),
    ],
)
def test_what_a_worker_could_not_say_is_said_for_it(
    code: int, stopping: bool, status: str, exit_code: int, error: str | None, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    run.write_result(status, **({"error": error} if status == "failed" else {}))  # type: ignore[arg-type]
    assert launcher.settle(run, code, stopping=stopping) == exit_code
    expected = {0: "finished", 1: "failed", 75: "interrupted"}[exit_code]
    assert run.read_result()["status"] == expected
    assert (run.read_result().get("error") or "").startswith(error or "")


def test_a_process_whose_parent_went_before_it_could_look_ends() -> None:
    code = "from attnlab.runs.launcher import die_with_parent; die_with_parent(); print('alive')"
    for parent, lives in ((os.getpid(), True), (os.getppid(), False)):
        environment = {**os.environ, "ATTNLAB_PARENT": str(parent)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.stdout == ("alive\n" if lives else "")
        assert done.returncode == (0 if lives else -signal.SIGTERM)


def test_another_trainings_ranks_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    environment = launcher.worker_environment()
    assert "LOCAL_RANK" not in environment
    assert environment["ATTNLAB_PARENT"] == str(os.getpid())
