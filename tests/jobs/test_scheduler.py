"""Scheduling of jobs, with small processes in place of workers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from attnlab.errors import UserError
from attnlab.files.run_directory import Run
from attnlab.files.writing import write_atomically
from attnlab.jobs import worker_process
from attnlab.jobs.scheduler import Scheduler, SweepProgress
from attnlab.jobs.slot_scheduler import SlotScheduler
from attnlab.jobs.slots import Slots
from attnlab.jobs.status import read_status, state
from daemons import held, wait_for

WORKER = """
import fcntl, json, os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
plan = json.loads((folder / "plan.json").read_text())
tries = len(list(folder.glob("try-*")))
started = time.time()
lock = open(folder / "lock", "a")
try:
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(69)
devices = os.environ["CUDA_VISIBLE_DEVICES"]
(folder / f"try-{tries}").touch()
signal.signal(signal.SIGTERM, signal.SIG_IGN if plan["hangs"] else lambda *_: sys.exit(75))
time.sleep(plan["seconds"])
outcome = plan["outcomes"][min(tries, len(plan["outcomes"]) - 1)]
if outcome == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if outcome.startswith("exit"):
    sys.exit(int(outcome[4:]))
finished = {"status": "finished", "metrics": {"val/loss": 0.5}}
result = finished if outcome == "finish" else {"status": "failed", "error": outcome}
(folder / "result.json").write_text(json.dumps(result))
(folder / "used.json").write_text(json.dumps([started, time.time(), devices]))
sys.exit(outcome != "finish")
"""


@pytest.fixture(autouse=True)
def _small_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(run: Run, environment: dict[str, str], **_: Any) -> worker_process.Worker:
        command = [sys.executable, "-S", "-E", "-c", WORKER, str(run.directory)]
        return subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)

    monkeypatch.setattr(worker_process, "start_worker", start)


def job(
    folder: Path, name: str, *outcomes: str, seconds: float = 0.0, devices: int = 1, hangs: bool = False
) -> Run:
    """Create a run whose attempts have these outcomes in order: "finish", "die", "exit 3", or an error."""
    run = Run(folder / name)
    run.directory.mkdir()
    (run.directory / "plan.json").write_text(
        json.dumps({"outcomes": outcomes or ["finish"], "seconds": seconds, "hangs": hangs})
    )
    config = {"checkpoint": {"monitor": "val/loss"}, "trainer": {"devices": devices}}
    write_atomically(run.config, json.dumps(config))
    return run


def tries(run: Run) -> int:
    return len(list(run.directory.glob("try-*")))


def interrupt_when(condition: Callable[[], object], times: int = 1) -> None:
    """Send SIGINT to this process once the condition is true."""

    def interrupt() -> None:
        wait_for(condition)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)

    threading.Thread(target=interrupt).start()


def dispatch(
    runs: list[Run], devices: str = "ab", *, retries: int = 0, fail_fast: bool = False, **timeouts: float
) -> SlotScheduler:
    slots = Slots(list(devices), gpus=True)
    scheduler = SlotScheduler(slots, retries=retries, fail_fast=fail_fast, **timeouts)
    scheduler.train(runs)
    return scheduler


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
    assert reasons[:3] == ["no such file", "was killed by SIGKILL", None]
    assert reasons[3] == "trainer.devices=9: this sweep has 2 devices"
    assert tries(runs[3]) == 0


def test_worker_that_cannot_be_started_frees_its_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, start = [job(tmp_path, "a"), job(tmp_path, "b")], worker_process.start_worker

    def refuse(run: Run, environment: dict[str, str], *, to_log: bool) -> worker_process.Worker:
        if run is runs[0]:
            raise BlockingIOError("Resource temporarily unavailable")
        return start(run, environment, to_log=to_log)

    monkeypatch.setattr(worker_process, "start_worker", refuse)
    dispatch(runs, devices="a")
    assert [state(run) for run in runs] == ["failed", "finished"]


def test_run_whose_job_ends_before_its_worker_starts_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lost(Scheduler):
        """A cluster whose jobs end at once."""

        def submit(self, runs: Sequence[Run]) -> None:
            self.runs = [*runs]

        def collect(self) -> dict[Run, int | str]:
            return dict.fromkeys(self.runs, "the node has no Python")

        def cancel(self) -> None:
            raise AssertionError

    run = job(tmp_path, "a")
    Lost().train([run])
    assert run.read_result() == {"status": "failed", "error": "the node has no Python"}


def test_finished_jobs_do_not_run_again(tmp_path: Path) -> None:
    runs = [job(tmp_path, "a", "die", "finish"), job(tmp_path, "b")]
    dispatch(runs)
    dispatch(runs)
    assert [tries(run) for run in runs] == [2, 1]
    assert [state(run) for run in runs] == ["finished", "finished"]


def test_line_of_a_job_that_ended_says_how_many_are_left(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SweepProgress(Console(stderr=True, width=200), 5)
    progress.started -= 120
    progress.print_end("finished", 3)
    progress.print_end("failed", 0)
    SweepProgress(progress.bar.console, 1).print_end("finished", 0)
    assert capsys.readouterr().err == "finished  2 of 5, about 3 min left\nfailed  5 of 5\nfinished\n"


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

    before = signal.getsignal(signal.SIGINT)  # ignored if the tests run in the background of a shell
    interrupt_when(lambda: tries(runs[0]) and tries(runs[1]), times)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dispatch(runs)
    assert time.monotonic() - started < 10
    assert tries(runs[2]) == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_job_that_ends_without_finishing_is_failed_and_retried(tmp_path: Path) -> None:
    runs = [job(tmp_path, "a", "exit 0"), job(tmp_path, "b", "exit 75", "finish")]
    dispatch(runs, retries=1)
    assert [state(run) for run in runs] == ["failed", "finished"]
    assert [tries(run) for run in runs] == [2, 2]
    assert runs[0].read_result()["error"].startswith("ended with exit code 0 before it was finished")


def test_job_is_stopped_at_its_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.jobs.slot_scheduler.STOP_TIMEOUT", 0.3)
    runs = [
        job(tmp_path, "a", seconds=30, hangs=True),
        job(tmp_path, "b", seconds=0.4),
        job(tmp_path, "c", seconds=30),
    ]
    dispatch(runs, "abc", timeout=1.5 / 60)
    assert [state(run) for run in runs] == ["failed", "finished", "failed"]
    assert runs[2].read_result()["error"] == "stopped after 0.025 minutes (hydra.launcher.timeout)"


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        *(("retries", value, "a whole number ≥ 0") for value in (-1, 1.5, "often", True)),
        *(("timeout", value, "a number of minutes > 0") for value in (0, -1, "an hour")),
    ],
)
def test_invalid_settings_are_named(setting: str, value: Any, allowed: str) -> None:
    with pytest.raises(UserError, match=rf"hydra\.launcher\.{setting}={value}: must be {allowed}"):
        dispatch([], **{setting: value})


def test_one_interruption_ends_hung_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.jobs.slot_scheduler.STOP_TIMEOUT", 0.3)
    run = job(tmp_path, "a", seconds=30, hangs=True)
    interrupt_when(lambda: tries(run))
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        dispatch([run])
    assert time.monotonic() - started < 10
    assert state(run) == "interrupted"


def test_run_in_use_is_tried_again_at_the_end(tmp_path: Path) -> None:
    """One of two runs that another sweep holds becomes free while the third run is training."""
    runs = [job(tmp_path, "a"), job(tmp_path, "b"), job(tmp_path, "c", seconds=1.0)]
    with held(runs[0]) as first, held(runs[1]) as second:

        def release() -> None:
            wait_for(lambda: tries(runs[2]))
            first.communicate(b"\n")

        threading.Thread(target=release).start()
        scheduler = dispatch(runs, "a")
        assert [tries(run) for run in runs] == [1, 0, 1]
        assert [read_status(run).state for run in runs] == ["finished", "in use", "finished"]
        assert f"is in use by process {second.pid} on " in read_status(runs[1]).describe()
        assert scheduler.failed == 0
