"""Sweeps by the command: failing, killed, interrupted, and with several processes per job."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run
from commands import ATTNLAB, TINY_REVERSE, attnlab, clean_environment
from daemons import wait_for
from forked import ForkedProcess
from tiny_runs import SYNTHETIC, TINY

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

DIES = """
import os, signal
from pathlib import Path
from attnlab.nn.attention import Additive

class Dies(Additive):
    def score(self, query, keys, state):
        if not Path("repaired").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(query, keys, state)
"""
RECORDS = """
from pathlib import Path
from hydra.experimental.callback import Callback

def record(*words):
    with open("called.txt", "a") as file:
        print(*words, file=file)

class Records(Callback):
    def on_multirun_start(self, config, **_):
        record("on_multirun_start")

    def on_multirun_end(self, config, **_):
        record("on_multirun_end")

    def on_job_start(self, config, **_):
        record("on_job_start", config.hydra.job.num, Path(config.hydra.runtime.output_dir).name)

    def on_job_end(self, config, job_return, **_):
        folder = Path(config.hydra.runtime.output_dir)
        record("on_job_end", config.hydra.job.num, folder.name, job_return.status.name)
"""
CASES = {
    "fine": "variant: fine\ndecoder: {size: 32}",
    "impossible": "variant: impossible\ndecoder: {size: 33}\ndefaults: [{override /attention: dot}]",
    "dies": "variant: dies\ndecoder: {size: 32}\nattention: {_target_: dies.Dies}",
    "lost": "variant: lost\ndecoder: {size: 32}\ndata: {path: lost.tsv, val_fraction: 0.2}\n"
    "defaults: [{override /data: pairs}, {override /tokenizer: whitespace}]",
}


def runs_in(folder: Path) -> list[Run]:
    return [Run(path.parent) for path in sorted(folder.glob("outputs/*/*/config.yaml"))]


def states(folder: Path) -> dict[str, str]:
    return {
        run.directory.name.rsplit("-seed", 1)[0]: run.read_result().get("status", "none")
        for run in runs_in(folder)
    }


def processes_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder: sweeps, workers, and what they started."""
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "cwd").resolve() == folder.resolve():
                pids.append(int(path.name))
    return pids


def start(folder: Path, *overrides: str) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    with (folder / "output.txt").open("ab") as output:
        return ForkedProcess(
            [ATTNLAB, "train", "-m", *overrides],
            cwd=folder,
            stdout=output,
            stderr=output,
            env=clean_environment(),
            start_new_session=True,
        )


def validations(folder: Path) -> int:
    """Return the total number of validations of the runs in a folder."""
    files = [run.metrics for run in runs_in(folder) if run.metrics.is_file()]
    return sum(path.read_text().count("val/loss,") for path in files)


def resumed(folder: Path) -> list[Run]:
    """Return the runs in a folder that resumed from a checkpoint."""
    logged = [run for run in runs_in(folder) if run.log.is_file()]
    return [run for run in logged if "resuming from step" in run.log.read_text()]


def test_repaired_study_repeats_only_its_failed_jobs(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    cases = tmp_path / "options" / "case"
    cases.mkdir(parents=True)
    for name, content in CASES.items():
        (cases / f"{name}.yaml").write_text(f"# @package _global_\n{content}\n")
    tiny = [override for override in TINY_REVERSE if not override.startswith(("data.", "decoder."))]
    limits = [f"trainer.limit_{split}_batches=3" for split in ("train", "val", "test")]
    overrides = [
        "--config-dir=options",
        "+case=glob(*)",
        *tiny,
        *limits,
        "trainer.max_epochs=1",
        "name=study",
    ]
    overrides += ["hydra.launcher.slots=2", "+hydra.callbacks.mine._target_=records.Records"]
    (tmp_path / "records.py").write_text(RECORDS)

    fitting = [word.replace("glob(*)", "fine,impossible") for word in overrides]
    completed = attnlab("train", "-m", *fitting, folder=tmp_path, code=2)
    assert "1 of 2 jobs cannot be built, and no job was started. impossible-seed0-" in completed.stderr
    assert "query of size 33 with a memory of size 32" in completed.stderr
    assert runs_in(tmp_path) == []
    (cases / "impossible.yaml").unlink()
    (tmp_path / "called.txt").unlink()

    completed = attnlab("train", "-m", *overrides, folder=tmp_path, code=1)
    assert states(tmp_path) == {"fine": "finished", "dies": "failed", "lost": "failed"}
    names = {run.directory.name.rsplit("-seed", 1)[0]: run.directory.name for run in runs_in(tmp_path)}
    called = (tmp_path / "called.txt").read_text().splitlines()
    assert (called[0], called[-1]) == ("on_multirun_start", "on_multirun_end")
    events = {"dies": "FAILED", "fine": "COMPLETED", "lost": "FAILED"}
    for number, (name, status) in enumerate(events.items()):
        start = called.index(f"on_job_start {number} {names[name]}")
        assert start < called.index(f"on_job_end {number} {names[name]} {status}")
    assert len(called) == 2 + 2 * len(events)
    failed = [line for line in completed.stdout.splitlines() if "failed " in line]
    output = {line.split("/")[-1].split("-seed")[0]: line for line in failed}
    assert "killed by SIGKILL" in output["dies"]
    assert "lost.tsv" in output["lost"]
    before = {run.directory: run.result.stat().st_mtime_ns for run in runs_in(tmp_path)}

    (tmp_path / "repaired").touch()
    (tmp_path / "lost.tsv").write_text("".join(f"a b {n}\tb a {n}\n" for n in range(40)))
    completed = attnlab("train", "-m", *overrides, folder=tmp_path)
    assert "1 of 3 already finished" in completed.stderr
    assert states(tmp_path) == dict.fromkeys(names, "finished")
    (fine,) = (run for run in runs_in(tmp_path) if run.directory.name.startswith("fine"))
    assert fine.result.stat().st_mtime_ns == before[fine.directory]


HANGS = """
import ctypes
from attnlab.nn.attention import Additive

class Hangs(Additive):
    def score(self, query, keys, state):
        if len(query) == 16:  # a batch of the training, not of the check before it
            ctypes.PyDLL(None).sleep(1000)  # holds the GIL
        return super().score(query, keys, state)
"""


def test_killed_or_interrupted_sweep_leaves_no_process(tmp_path: Path) -> None:
    """One of two jobs hangs in a C call."""
    (tmp_path / "hangs.py").write_text(HANGS)
    overrides = [
        *TINY_REVERSE,
        "trainer.max_epochs=500",
        "logger=none",
        "attention._target_=attnlab.nn.attention.Additive,hangs.Hangs",
        "variant='${attention._target_}'",
        "seed=0",
        "fused=false",
        "hydra.launcher.slots=2",
    ]

    def hanging() -> bool:
        return any("parameters" in path.read_text() for path in tmp_path.glob("outputs/*/hangs*/train.log"))

    launcher = start(tmp_path, *overrides)
    wait_for(lambda: hanging() and any(run.last.is_file() for run in runs_in(tmp_path)))
    launcher.kill()
    launcher.wait()
    wait_for(lambda: not processes_in(tmp_path), 15)

    launcher = start(tmp_path, *overrides)
    wait_for(lambda: len(resumed(tmp_path)) == 1)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(30) == 75
    assert processes_in(tmp_path) == []
    assert [run.read_result()["status"] for run in runs_in(tmp_path)] == ["interrupted", "interrupted"]


def test_sweep_mixes_jobs_of_one_and_two_processes(tmp_path: Path) -> None:
    overrides = [*TINY_REVERSE, "trainer.devices=1,2", "variant='devices${trainer.devices}'"]
    overrides += ["trainer.max_epochs=1", "logger=none", "data.test_size=23"]
    completed = attnlab("train", "-m", *overrides, "hydra.launcher.slots=2", folder=tmp_path)
    assert states(tmp_path) == {"devices1": "finished", "devices2": "finished"}
    (run,) = (run for run in runs_in(tmp_path) if run.directory.name.startswith("devices2"))
    assert "distributed_backend=gloo" in run.log.read_text()
    assert len((run.predictions / "test.jsonl").read_text().splitlines()) == 22  # of 23, two have one input
    for split, names in (("val", ("val/", "attention/")), ("test", ("test/",))):
        attnlab("evaluate", str(run.directory), "--split", split, folder=tmp_path)
        output = json.loads((run.directory / "evaluations" / split / "result.json").read_text())["metrics"]
        together = {k: v for k, v in run.read_result()["metrics"].items() if k.startswith(names)}
        assert output == pytest.approx(together, abs=1e-5)

    # All runs are finished
    completed = attnlab("train", "-m", *overrides, "hydra/launcher=basic", folder=tmp_path)
    assert completed.stdout.count("already finished") == 2
    assert f"{run.directory.name} │ finished" in completed.stdout


def test_study_killed_twice_gives_the_same_results(tmp_path: Path) -> None:
    small = ["data.train_size=80", "data.val_size=20", "data.test_size=20", "batching.batch_size=16"]
    overrides = ["study=attention_variants", "quick=true", "hydra/launcher=slots", *small, "seed=0"]
    overrides += ["attention=none,additive", "trainer.max_epochs=4", "logger=none", "trainer.accelerator=cpu"]
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    assert start(alone, *overrides).wait(300) == 0

    draw = random.Random(0)
    finished: dict[Path, int] = {}
    for _ in range(2):
        moment = validations(killed) + draw.randint(1, 2)
        launcher = start(killed, *overrides)
        # a fast sweep ends before so many validations
        wait_for(
            partial(lambda n, sweep: validations(killed) >= n or sweep.poll() is not None, moment, launcher)
        )
        time.sleep(draw.random() / 2)
        for process in processes_in(killed):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        launcher.wait()
        wait_for(lambda: not processes_in(killed), 15)
        completed = {run.result: run for run in runs_in(killed) if run.read_result()["status"] == "finished"}
        finished |= {path: path.stat().st_mtime_ns for path in completed if path not in finished}
    assert start(killed, *overrides).wait(300) == 0

    assert len(runs_in(alone)) == 2
    for run in runs_in(alone):
        again = Run(killed / run.directory.relative_to(alone))
        assert again.read_result()["metrics"] == run.read_result()["metrics"]
        steps = [step for step, _ in read_metrics(again.metrics)["val/loss"]]
        assert steps == [4, 9, 14, 19]
    assert resumed(killed)
    assert all(path.stat().st_mtime_ns == written for path, written in finished.items())


RECORDS_CORES = """
import os
from pathlib import Path
from attnlab.nn.attention import Additive

class RecordsCores(Additive):
    def score(self, query, keys, state):
        Path(f"cores-{os.getpid()}").write_text(str(sorted(os.sched_getaffinity(0))))
        return super().score(query, keys, state)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_job_of_a_sweep_stays_on_its_own_cores(tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(RECORDS_CORES)
    cores = sorted(os.sched_getaffinity(0))
    halves = {str(cores[: len(cores) // 2]), str(cores[len(cores) // 2 :])}
    attnlab(
        *("train", "-m", *TINY_REVERSE, "logger=none", "trainer.max_steps=2", "seed=0,1"),
        *("attention._target_=records.RecordsCores", "hydra.launcher.slots=2", "hydra.launcher.threads=1"),
        folder=tmp_path,
    )
    recorded = {path.read_text() for path in tmp_path.glob("cores-*")}
    assert recorded == {*halves, str(cores)}  # the check before the sweep has all cores


def test_options_of_swept_groups_are_in_the_names_of_the_runs(tmp_path: Path) -> None:
    swept = ("encoder=bag,mingru", "zip(attention=additive,mean readout=softmax,pointer_generator)")
    tiny = (*TINY, *SYNTHETIC, "trainer.max_epochs=1", "logger=none", "callbacks.attention_figures.count=0")
    attnlab("train", "-m", *swept, *tiny, "seed=1", folder=tmp_path)
    assert states(tmp_path) == {
        f"{attention}-{encoder}-{readout}": "finished"
        for encoder in ("bag", "mingru")
        for attention, readout in (("additive", "softmax"), ("mean", "pointer_generator"))
    }


def test_jobs_in_the_foreground_are_those_of_other_launchers(tmp_path: Path) -> None:
    tiny = (*TINY, *SYNTHETIC, "trainer.max_epochs=1", "logger=none", "callbacks.attention_figures.count=0")
    sweep = ("train", "-m", "encoder=bag,mingru", "callbacks.averaging.decay=0.9", *tiny)
    attnlab(*sweep, "hydra/launcher=basic", folder=tmp_path)
    assert states(tmp_path) == {"additive-bag": "finished", "additive-mingru": "finished"}
    attnlab(*sweep, folder=tmp_path)
    assert len([*tmp_path.glob("outputs/*/*/config.yaml")]) == 2
