"""A run that was killed and goes on equals one that never was, to the last bit."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from attnlab.runs.directory import Run, prepare
from attnlab.training import checkpoints
from commands import ATTNLAB, TINY_REVERSE, attnlab, clean_environment

SETTINGS = {
    "dropout and drawn teacher forcing": (
        "teacher_forcing.value=0.5",
        "embedding.dropout=0.2",
        "loss.coverage=0.5",
    ),
    "accumulated gradients and validation inside epochs": (
        "trainer.accumulate_grad_batches=2",
        "trainer.val_check_interval=3",
        "attention=monotonic",  # which draws its noise
    ),
    "patience and a plateau": (
        "callbacks=early_stopping",
        "callbacks.early_stopping.patience=4",
        "scheduler=plateau",
        "scheduler.schedule.patience=0",
        "trainer.val_check_interval=0.5",  # not at the end of an epoch of 13 batches
        "optimizer.lr=0.3",
        "trainer.max_epochs=20",
    ),
    "loader workers and a limit of steps": (
        "batching.workers=2",
        "batching.batch_type=tokens",
        "batching.batch_size=150",
        "scheduler=plateau",
        "trainer.max_steps=40",  # inside the last epoch
    ),
    "two processes": ("trainer.devices=2", "teacher_forcing.value=0.5", "trainer.accumulate_grad_batches=2"),
}
COMMON = (
    "trainer.max_epochs=4",
    "trainer.log_every_n_steps=2",
    "checkpoint.every_minutes=0",
    "callbacks.attention_figures.count=1",
    "logger=none",
)
KILLED = Path(__file__).parents[1] / "killed.py"


@pytest.fixture
def made(composed: Callable[..., DictConfig], tmp_path: Path) -> Callable[..., Run]:
    """Make the directory of a tiny run, in a folder by the name given."""

    def make(folder: str, *words: str) -> Run:
        config = composed(*TINY_REVERSE, *COMMON, *words)
        config.paths.output = str(tmp_path / folder)
        return prepare(config)

    return make


def run_killed(*words: object) -> list[str]:
    """What `killed.py` says of its workers."""
    done = subprocess.run(
        [sys.executable, str(KILLED), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
        env=clean_environment(),
    )
    return re.findall(r"^(?:killed before|ended with) .*", done.stdout, re.MULTILINE)


def what_it_came_to(run: Run) -> dict[str, Any]:
    """All that must not depend on whether a run was killed: left out is what tells of time and place."""
    content: dict[str, Any] = {}
    for path in (run.best, run.last):
        checkpoint = checkpoints.load(path)
        del checkpoint["attnlab"]["config"]["paths"]
        del checkpoint["resumption"]["seconds"], checkpoint["resumption"]["metrics_length"]
        # Batches validated in this epoch: Lightning counts some twice where it resumed, and never looks.
        del checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
        content[path.name] = plain(checkpoint, str(run.directory.resolve()))
    lines = run.metrics.read_text().splitlines(keepends=True)
    content["metrics.csv"] = [line for line in lines if ",throughput/" not in line]
    result = run.read_result()
    content["result.json"] = {key: result[key] for key in ("status", "metrics", "steps", "parameters")}
    for path in run.predictions.iterdir():
        content[path.name] = path.read_text()
    content["figures"] = sorted(path.name for path in run.figures.iterdir())
    return content


def plain(value: Any, place: str) -> Any:
    """Tensors as their bytes, and paths without the place of the run, so that `==` compares all."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {plain(key, place): plain(part, place) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, place) for part in value]
    if isinstance(value, str):
        return value.replace(place, "RUN")
    return repr(value) if isinstance(value, float) and math.isnan(value) else value


def assert_the_same(killed: Run, whole: Run) -> None:
    """Compare part by part, for a failure to be readable."""
    one, other = what_it_came_to(killed), what_it_came_to(whole)
    assert one.keys() == other.keys()
    for name in one:
        assert one[name] == other[name], name


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in SETTINGS if case != "two processes"])
def test_killed_between_any_two_changes_of_the_disk(case: str, made: Callable[..., Run]) -> None:
    whole, killed = made("whole", *SETTINGS[case]), made("killed", *SETTINGS[case])
    (said,) = run_killed(whole.directory, "never")
    changes = int(re.fullmatch(r"ended with 0 after (\d+) changes", said)[1])  # type: ignore[index]
    # Drawn over the whole run. Each worker starts up anew, and trains on from where the last one came to.
    places = sorted(random.Random(case).sample(range(1, changes), 8))
    moments = [places[0], *(5 + later - before for before, later in pairwise(places))]
    *kills, end = run_killed(killed.directory, *moments, "never")
    assert len(kills) == 8
    assert all(kill.startswith("killed") for kill in kills), kills
    assert end.startswith("ended with 0")
    assert_the_same(killed, whole)


@pytest.mark.slow
@pytest.mark.parametrize("case", SETTINGS)
def test_killed_at_random_moments(case: str, made: Callable[..., Run]) -> None:
    """Four a case, drawn over the time that a run takes: SIGKILL to the worker and all it started."""
    whole = made("whole", *SETTINGS[case])
    started = time.monotonic()
    worker = start(whole)
    while not whole.metrics.exists():
        time.sleep(0.02)
        assert worker.poll() is None
    start_up = time.monotonic() - started
    assert worker.wait(300) == 0
    training = time.monotonic() - started - start_up

    draw = random.Random(case)
    kills, attempts = 0, 0
    killed = made(f"killed {attempts}", *SETTINGS[case])
    while True:
        worker = start(killed)
        # Each attempt starts up anew, and trains on from where the last one came to.
        moment = draw.uniform(0, start_up + training / 3) if kills < 4 else 300
        try:
            code = worker.wait(moment)
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            kills += 1
            continue
        assert code == 0
        assert_the_same(killed, whole)
        if kills == 4:
            return
        attempts += 1  # it was faster than its kill: the kills that are left go to another one
        killed = made(f"killed {attempts}", *SETTINGS[case])


def start(run: Run) -> subprocess.Popen[bytes]:
    """Start a worker, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "attnlab.cli.worker", str(run.directory)],
        env=clean_environment(),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(made: Callable[..., Run]) -> None:
    words = SETTINGS["dropout and drawn teacher forcing"]
    whole, half = made("whole", *words), made("half", *words)
    run_killed(half.directory, 80)
    for path in (half.best, half.last, half.previous):
        assert path.is_file()

    def copied(name: str) -> Run:
        shutil.copytree(half.directory.parent, half.directory.parents[1] / name)
        return Run(half.directory.parents[1] / name / half.directory.name)

    flipped, emptied, both, best = map(copied, ("flipped", "emptied", "both", "best"))
    flip(flipped.last)
    with flipped.metrics.open("a") as file:
        file.write("3,77,val/lo")  # killed in the middle of a row, too
    emptied.last.write_bytes(b"")
    for path in (both.last, both.previous, best.best):
        flip(path)
    said = run_killed(
        *(word for run in (whole, flipped, emptied, both, best) for word in (run.directory, "never"))
    )
    assert [line.split()[2] for line in said] == ["0", "0", "0", "1", "1"]
    for run in (flipped, emptied):
        assert_the_same(run, whole)
        told = run.log.read_text()
        assert f"{run.last} is damaged; resuming from the previous checkpoint previous.ckpt" in told
        assert "resuming from step" in told
    assert "last.ckpt and previous.ckpt in" in both.read_result()["error"]
    assert "force=true" in both.read_result()["error"]
    assert both.best.read_bytes() == half.best.read_bytes()  # what there is to keep is kept
    assert f"{best.best} cannot be read" in best.read_result()["error"]


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_the_second_of_two_is_told_who_is_at_work(tmp_path: Path) -> None:
    words = [*TINY_REVERSE, "trainer.max_epochs=1000", "logger=none"]
    with subprocess.Popen([ATTNLAB, "train", *words], cwd=tmp_path, env=clean_environment()) as first:
        while not list(tmp_path.glob("outputs/reverse/*/metrics.csv")):
            time.sleep(0.1)
            assert first.poll() is None
        said = [attnlab("train", *words, *more, folder=tmp_path) for more in ([], ["force=true"])]
        (directory,) = tmp_path.glob("outputs/reverse/*")
        status = Run(directory).read_result()["status"]
        first.send_signal(signal.SIGTERM)
    assert [second.returncode for second in said] == [1, 1]
    for second in said:
        line = second.stderr.splitlines()[-1]
        assert re.search(
            r"^attnlab: .* is in use by process \d+ on \S+: wait until it ends, or stop it$", line
        )
    assert (status, first.returncode) == ("running", 75)


@pytest.mark.slow
def test_the_run_in_wandb_stays_the_same(made: Callable[..., Run]) -> None:
    run = made("run", "logger=wandb")
    assert run_killed(run.directory, 30, "never")[1].startswith("ended with 0")
    files = list(run.directory.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2
    assert {path.stem for path in files} == {f"run-{run.hash}"}
    killed, whole = sorted(map(logged_steps, files), key=len)  # a kill loses what was not written yet
    assert killed == sorted(killed)
    assert whole == sorted(whole)
    assert len(whole) > 20


def logged_steps(path: Path) -> list[int]:
    """`trainer/global_step` of each row of an offline run that has one, in the order logged."""
    command = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect", "--json", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=clean_environment())
    records = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    rows = [record["history"]["item"] for record in records if record.get("type") == "history"]
    return [row["trainer/global_step"] for row in rows if "trainer/global_step" in row]


@pytest.mark.slow
def test_a_run_asked_to_stop_before_it_trains_leaves_in_good_order(made: Callable[..., Run]) -> None:
    run = made("run")
    worker = start(run)
    while run.read_result().get("status") != "running":
        time.sleep(0.02)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(100) == 75
    assert run.read_result()["status"] == "interrupted"
