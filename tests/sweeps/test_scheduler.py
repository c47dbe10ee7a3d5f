"""Scheduling of jobs, with small processes in place of workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.runs import launcher
from attnlab.runs.directory import Run
from attnlab.runs.files import write_atomically
from attnlab.sweeps.jobs import state
from attnlab.sweeps.scheduler import Scheduler
from attnlab.sweeps.slots import Slots

WORKER = """
import json, os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
plan = json.loads((folder / "plan.json").read_text())
tries = len(list(folder.glob("try-*")))
started = time.time()
devices = os.environ["CUDA_VISIBLE_DEVICES"]
(folder / f"try-{tries}").touch()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
time.sleep(plan["seconds"])
outcome = plan["outcomes"][min(tries, len(plan["outcomes"]) - 1)]
if outcome == "die":
    os.kill(os.getpid(), signal.SIGKILL)
finished = {"status": "finished", "metrics": {"val/loss": 0.5}}
result = finished if outcome == "finish" else {"status": "failed", "error": outcome}
(folder / "result.json").write_text(json.dumps(result))
(folder / "used.json").write_text(json.dumps([started, time.time(), devices]))
sys.exit(outcome != "finish")
"""


@pytest.fixture(autouse=True)
def _small_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(run: Run, environment: dict[str, str], **_: Any) -> launcher.Worker:
        command = [sys.executable, "-S", "-E", "-c", WORKER, str(run.directory)]
        return subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)

    monkeypatch.setattr(launcher, "start", start)
    monkeypatch.setattr("attnlab.sweeps.scheduler.find_errors", lambda _: {})


def job(folder: Path, name: str, *outcomes: str, seconds: float = 0.0, devices: int = 1) -> Run:
    """Create a run whose attempts have these outcomes in order: "finish", "die", or an error message."""
    run = Run(folder / name)
    run.directory.mkdir()
    (run.directory / "plan.json").write_text(
        json.dumps({"outcomes": outcomes or ["finish"], "seconds": seconds})
    )
    config = {"checkpoint": {"monitor": "val/loss"}, "trainer": {"devices": devices}}
    write_atomically(run.config, json.dumps(config))
    return run


def tries(run: Run) -> int:
    return len(list(run.directory.glob("try-*")))


def dispatch(
    runs: list[Run], devices: str = "ab", retries: int = 0, fail_fast: bool = False, jobs_per_device: int = 1
) -> None:
    slots = Slots(list(devices), gpus=True, jobs_per_device=jobs_per_device)
    Scheduler(slots, retries=retries, fail_fast=fail_fast).train(runs)


def test_jobs_of_different_sizes_use_all_devices_without_sharing(tmp_path: Path) -> None:
    sizes = [1, 2, 1, 1, 3, 1]
    runs = [job(tmp_path, str(n), devices=size, seconds=0.2) for n, size in enumerate(sizes)]
    dispatch(runs, devices="abc")
    used = [json.loads((run.directory / "used.json").read_text()) for run in runs]
    assert [len(devices.split(",")) for *_, devices in used] == sizes
    for n, (started, ended, devices) in enumerate(used):
        for other_started, other_ended, other_devices in used[:n]:
            if other_started < ended and started < other_ended:
                assert not set(devices.split(",")) & set(other_devices.split(","))
    assert used[1][0] < used[0][1]  # the second begins before the first has ended


def test_failed_job_is_recorded_and_others_continue(tmp_path: Path) -> None:
    runs = [job(tmp_path, "a", "no such file"), job(tmp_path, "b", "die"), job(tmp_path, "c")]
    runs.append(job(tmp_path, "d", devices=9))
    dispatch(runs)
    assert [state(run) for run in runs] == ["failed", "failed", "finished", "failed"]
    reasons = [run.read_result().get("error") for run in runs]
    assert reasons == [
        "no such file",
        "killed by SIGKILL",
        None,
        "trainer.devices=9: this sweep has 2 devices",
    ]
    assert tries(runs[3]) == 0


def test_finished_jobs_do_not_run_again(tmp_path: Path) -> None:
    runs = [job(tmp_path, "a", "die", "finish"), job(tmp_path, "b")]
    dispatch(runs)
    dispatch(runs)
    assert [tries(run) for run in runs] == [2, 1]
    assert [state(run) for run in runs] == ["finished", "finished"]


def test_failed_jobs_are_retried(tmp_path: Path) -> None:
    runs = [job(tmp_path, "a", "die", "bad luck", "finish"), job(tmp_path, "b", "die"), job(tmp_path, "c")]
    dispatch(runs, retries=2)
    assert [state(run) for run in runs] == ["finished", "failed", "finished"]
    assert [tries(run) for run in runs] == [3, 3, 1]


def test_fail_fast_stops_all_jobs(tmp_path: Path) -> None:
    runs = [job(tmp_path, "a", "oh", seconds=0.3), job(tmp_path, "b", seconds=30), job(tmp_path, "c")]
    with pytest.raises(UserError, match="fail_fast=true"):
        dispatch(runs, fail_fast=True)
    assert state(runs[0]) == "failed"
    assert [tries(run) for run in runs] == [1, 1, 0]


@pytest.mark.parametrize("times", [1, 2])
def test_signal_stops_all_jobs_and_raises(times: int, tmp_path: Path) -> None:
    runs = [job(tmp_path, "a", seconds=30), job(tmp_path, "b", seconds=30), job(tmp_path, "c")]

    def interrupt() -> None:
        while not (tries(runs[0]) and tries(runs[1])):
            time.sleep(0.05)
        time.sleep(0.2)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    before = signal.getsignal(
        signal.SIGINT
    )  # SIGINT is ignored if the tests run in the background of a shell
    threading.Thread(target=interrupt).start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dispatch(runs)
    assert time.monotonic() - started < 10
    assert tries(runs[2]) == 0
    assert signal.getsignal(signal.SIGINT) is before
