"""Environment and end of worker processes."""

import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import INTERRUPTED, UserError
from attnlab.files.run_directory import Run
from attnlab.jobs import worker, worker_process
from attnlab.jobs.logs import log_to_files


@pytest.mark.parametrize(
    ("code", "stopping", "status", "exit_code", "error"),
    [
        (0, False, "finished", 0, None),
        (-9, False, "finished", 0, None),  # killed after it finished
        (75, True, "interrupted", 75, None),
        (1, False, "failed", 1, "another error"),
        (3, False, "running", 1, "ended with exit code 3 before it was finished, see "),
        (0, False, "running", 1, "ended with exit code 0 before it was finished, see "),
        (75, False, "running", 1, "ended with exit code 75 before it was finished, see "),
        (75, False, "interrupted", 75, "stopped by a signal to its process"),
        (-9, False, "running", 1, "was killed by SIGKILL"),
        (-15, True, "running", 75, None),
        (1, True, "running", 75, None),
        (1, True, "failed", 1, "another error"),
        (worker_process.IN_USE, False, "interrupted", worker_process.IN_USE, None),
    ],
)
def test_settle_records_the_end_of_a_worker(
    code: int, stopping: bool, status: str, exit_code: int, error: str | None, tmp_path: Path
) -> None:
    run = Run(tmp_path)
    values = {"failed": {"error": error}, "finished": {"metrics": {"val/loss": 1.0}}}.get(status, {})
    run.write_result(status, **values)
    assert worker_process.record_exit(run, code, stopping=stopping) == exit_code
    expected = {0: "finished", 1: "failed"}.get(exit_code, "interrupted")
    assert run.read_result()["status"] == expected
    assert (run.read_result().get("error") or "").startswith(error or "")


def test_worker_does_not_inherit_distributed_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert "LOCAL_RANK" not in worker_process.worker_environment()


def test_log_has_messages_of_all_packages_and_details_of_attnlab(tmp_path: Path) -> None:
    loggers = [logging.getLogger(name) for name in (None, "attnlab")]
    before = [(logger.level, [*logger.handlers]) for logger in loggers]
    try:
        log_to_files(Run(tmp_path), terminal=False)
        logging.getLogger("other").info("from another package")
        logging.getLogger("attnlab.part").debug("a detail")
        logging.getLogger("other").debug("not recorded")
    finally:
        logging.captureWarnings(False)
        for logger, (level, handlers) in zip(loggers, before, strict=True):
            for added in {*logger.handlers} - {*handlers}:
                added.close()
            logger.setLevel(level)
            logger.handlers[:] = handlers
    lines = Run(tmp_path).log.read_text().splitlines()
    assert [line.partition(",")[2].split(" ", 1)[1] for line in lines] == [
        "INFO other: from another package",
        "DEBUG attnlab.part: a detail",
    ]


def test_rank_in_a_step_of_several_tasks_is_that_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "LOCAL_RANK", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_PROCID", "3")
    assert worker.rank() == 0  # one task: the rank of another program
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert worker.rank() == 3
    monkeypatch.setenv("RANK", "1")
    assert worker.rank() == 1


def test_reason_of_the_scheduler_is_recorded_unless_the_run_finished(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_result("interrupted")
    assert worker_process.record_exit(run, 75, stopping=False, reason="no progress") == 1
    assert run.read_result() == {"status": "failed", "error": "no progress"}
    run.write_result("finished", metrics={"val/loss": 1.0})
    assert worker_process.record_exit(run, -9, stopping=False, reason="no progress") == 0


HUNG = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
open(sys.argv[1] + "/started", "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize("times", [1, 2])
def test_hung_worker_is_killed_after_an_interruption(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first SIGINT after a time, at the second one at once."""

    def start(run: Run, **_: Any) -> worker_process.Worker:
        return subprocess.Popen([sys.executable, "-SEc", HUNG, str(tmp_path)], start_new_session=True)

    def interrupt() -> None:
        while not (tmp_path / "started").exists() or signal.getsignal(signal.SIGINT) is handler:
            time.sleep(0.01)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)

    monkeypatch.setattr(worker_process, "start_worker", start)
    monkeypatch.setattr(worker_process, "STOP_TIMEOUT", 0.3 if times == 1 else 60)
    handler = signal.getsignal(signal.SIGINT)  # without one of train, the signal would end pytest
    run = Run(tmp_path)
    run.write_result("running")
    threading.Thread(target=interrupt).start()
    started = time.monotonic()
    assert worker_process.train_in_worker(run) == INTERRUPTED
    assert time.monotonic() - started < 10
    assert run.read_result() == {"status": "interrupted"}


def test_worker_writes_nothing_into_another_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert worker.main(str(tmp_path)) == 1
    assert "is not a run directory" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "code", "is_defect"),
    [
        (UserError("data.path: no such file"), worker_process.REFUSED, False),
        (OSError(errno.ENOSPC, "No space left on device", "metrics.csv"), 1, False),
        (ZeroDivisionError("division by zero"), 1, True),
    ],
)
def test_failed_run_names_the_stack_trace_of_defects_only(
    error: Exception,
    code: int,
    is_defect: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(worker, "quieten_lightning", fail)
    run = Run(tmp_path)
    run.config.write_text("seed: 0\n")
    assert worker._train(run, first_rank=True) == code
    assert (f"the stack trace is in {run.log}" in caplog.messages) == is_defect
    assert run.read_result()["status"] == "failed"
    assert str(error.args[-1]) in run.read_result()["error"]
