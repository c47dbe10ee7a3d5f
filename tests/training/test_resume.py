"""Resumed runs equal uninterrupted ones bit by bit."""

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

from attnlab.files.metrics_file import read_metrics
from attnlab.files.run_directory import Run, prepare_run
from attnlab.training import checkpoints
from commands import ATTNLAB, TINY_REVERSE, attnlab, clean_environment
from forked import ForkedProcess
from wandb_files import read_offline

DROPOUT = "dropout and sampled teacher forcing"
TWO_PROCESSES = "two processes"
WITH_LOADERS = "loader workers and max_steps"
SETTINGS = {
    DROPOUT: (
        "teacher_forcing.start=0.5",
        "embedding.dropout=0.2",
        "loss.terms.coverage.weight=0.5",
    ),
    "accumulated gradients and validation inside epochs": (
        "trainer.accumulate_grad_batches=2",
        "trainer.val_check_interval=3",
        "attention=monotonic",  # draws noise
    ),
    "early stopping and a plateau scheduler": (
        "callbacks.early_stopping.patience=4",
        "callbacks.averaging.decay=0.7",
        "callbacks.averaging.update_starting_at_epoch=2",
        "scheduler=plateau",
        "scheduler.schedule.patience=0",
        "trainer.val_check_interval=0.5",  # not at the end of an epoch of 7 batches
        "optimizer.lr=0.3",
        "trainer.max_epochs=10",
    ),
    WITH_LOADERS: (
        "batching.workers=2",
        "batching.batch_type=tokens",
        "batching.batch_size=150",
        "scheduler=plateau",
        "trainer.max_steps=20",  # inside the last epoch
    ),
    TWO_PROCESSES: ("trainer.devices=2", "teacher_forcing.start=0.5", "trainer.accumulate_grad_batches=2"),
}
COMMON = (
    "data.train_size=100",
    "trainer.max_epochs=4",
    "trainer.log_every_n_steps=2",
    "checkpoint.every_minutes=0",
    "callbacks.attention_figures.count=1",
    "logger=none",
)
KILLED = Path(__file__).parents[1] / "killed.py"


@pytest.fixture
def make_run(composed: Callable[..., DictConfig], tmp_path: Path) -> Callable[..., Run]:
    """Return a function that creates the directory of a tiny run in a folder with the given name."""

    def make(folder: str, *words: str) -> Run:
        config = composed(*TINY_REVERSE, *COMMON, *words)
        config.paths.output = str(tmp_path / folder)
        return prepare_run(config)

    return make


def run_killed(*words: object) -> list[str]:
    """Run `killed.py` and return its line for each worker."""
    command = [sys.executable, str(KILLED), *map(str, words)]
    with ForkedProcess(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) as process:
        output, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    return re.findall(r"^(?:killed|ended with) .*", output, re.MULTILINE)


def outputs_of(run: Run) -> dict[str, Any]:
    """Return the outputs that must not depend on interruptions; times and paths are left out."""
    content: dict[str, Any] = {}
    for path in (run.best, run.last):
        checkpoint = checkpoints.read_checkpoint(path)
        del checkpoint["attnlab"]["config"]["paths"]
        del checkpoint["resumption"]["seconds"], checkpoint["resumption"]["metrics_length"]
        # Validated batches of this epoch: Lightning counts some twice after resuming, and never reads them
        del checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
        content[path.name] = plain(checkpoint, str(run.directory.resolve()))
    lines = run.metrics.read_text().splitlines(keepends=True)
    content["metrics.csv"] = [line for line in lines if ",throughput/" not in line]
    result = run.read_result()
    content["result.json"] = {key: result[key] for key in ("status", "metrics", "steps", "parameters")}
    for path in run.predictions.iterdir():
        content[path.name] = path.read_text()
    content["figures"] = sorted(path.name for path in run.figures.glob("*"))
    return content


def plain(value: Any, place: str) -> Any:
    """Convert tensors to bytes and remove the run directory from paths, so that `==` compares everything."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {plain(key, place): plain(part, place) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, place) for part in value]
    if isinstance(value, str):
        return value.replace(place, "RUN")
    return repr(value) if isinstance(value, float) and math.isnan(value) else value


def assert_equal_outputs(killed: Run, whole: Run) -> None:
    """Compare the outputs of two runs, one by one for readable failures."""
    one, other = outputs_of(killed), outputs_of(whole)
    assert one.keys() == other.keys()
    for name in one:
        assert one[name] == other[name], name


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in SETTINGS if case not in (DROPOUT, TWO_PROCESSES)])
def test_resume_after_sigkill_is_bit_exact(case: str, make_run: Callable[..., Run]) -> None:
    """Kill a run before three random changes of its files."""
    whole, killed = (make_run(folder, *SETTINGS[case]) for folder in ("whole", "killed"))
    draw = random.Random(case)
    (line,) = run_killed(whole.directory, "never")
    changes = int(re.fullmatch(r"ended with 0 after (\d+) changes", line)[1])
    places = sorted(draw.sample(range(1, changes), 3))
    moments = [places[0], *(5 + later - before for before, later in pairwise(places))]
    *kills, end = run_killed(killed.directory, *moments, "never")
    assert len(kills) == 3
    assert all(kill.startswith("killed before") for kill in kills), kills
    assert end.startswith("ended with 0")
    assert_equal_outputs(killed, whole)


@pytest.mark.slow
def test_resume_after_sigkill_at_random_times_is_bit_exact(make_run: Callable[..., Run]) -> None:
    """The processes that load the data are killed as well."""
    whole, killed = (make_run(folder, *SETTINGS[WITH_LOADERS]) for folder in ("whole", "killed"))
    draw = random.Random(0)
    # Each worker starts again and resumes where the last one was killed, so the times add up to a run or less
    times = [f"{draw.uniform(0, 0.25):.3f}x" for _ in range(2)]
    _, *lines = run_killed(whole.directory, "never", killed.directory, *times, "never")
    assert any(line.startswith("killed after") for line in lines), lines
    assert lines[-1].startswith("ended with 0")
    assert_equal_outputs(killed, whole)


@pytest.mark.slow
def test_resume_after_sigkill_of_two_processes_is_bit_exact(make_run: Callable[..., Run]) -> None:
    """SIGKILLs at random times, start-up included, to workers and their child processes."""
    whole = make_run("whole", *SETTINGS[TWO_PROCESSES])
    started = time.monotonic()
    assert start(whole).wait(300) == 0
    seconds = time.monotonic() - started

    draw = random.Random(0)
    kills, attempts = 0, 0
    killed = make_run(f"killed {attempts}", *SETTINGS[TWO_PROCESSES])
    while True:
        worker = start(killed)
        # Each worker resumes where the last one was killed
        try:
            code = worker.wait(draw.uniform(0, seconds / 2) if kills < 2 else 300)
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            kills += 1
            continue
        assert code == 0, stderr_of(killed).read_text()
        assert_equal_outputs(killed, whole)
        if kills == 2:
            return
        attempts += 1  # it finished before the kill: the remaining kills hit a new run
        killed = make_run(f"killed {attempts}", *SETTINGS[TWO_PROCESSES])


def stderr_of(run: Run) -> Path:
    """Return the file for what the last worker printed as errors."""
    return run.directory.with_name("stderr.txt")


def start(run: Run) -> subprocess.Popen[bytes]:
    """Start a worker in its own process group; its errors are in `stderr_of(run)`."""
    with stderr_of(run).open("w") as stderr:
        return ForkedProcess(
            [sys.executable, "-m", "attnlab.jobs.worker", str(run.directory)],
            env=clean_environment(),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )


@pytest.mark.slow
def test_damaged_checkpoint_is_reported_and_the_previous_one_is_used(make_run: Callable[..., Run]) -> None:
    words = SETTINGS[DROPOUT]
    whole, half = make_run("whole", *words), make_run("half", *words)
    other = make_run("other", *words, "seed=1")
    run_killed(half.directory, 130, other.directory, 130)
    for path in (half.best, half.last, half.previous):
        assert path.is_file()

    def copied(name: str) -> Run:
        shutil.copytree(half.directory.parent, half.directory.parents[1] / name)
        return Run(half.directory.parents[1] / name / half.directory.name)

    names = ("flipped", "emptied", "both", "best", "deleted", "exchanged", "replaced")
    flipped, emptied, both, best, deleted, exchanged, replaced = map(copied, names)
    shutil.copyfile(other.last, exchanged.last)
    shutil.copyfile(other.best, replaced.best)
    full = copied("full")
    flip(flipped.last)
    with flipped.metrics.open("a") as file:
        file.write("3,77,val/lo")  # and killed in the middle of a row
    emptied.last.write_bytes(b"")
    for path in (both.last, both.previous, best.best):
        flip(path)
    deleted.best.unlink()
    (line,) = run_killed(full.directory, "full")
    assert line.startswith("ended with 1")
    assert full.read_result()["status"] == "failed"
    assert "cannot be written: no space left. The checkpoint before it is kept" in full.read_result()["error"]
    assert full.previous.read_bytes() == half.last.read_bytes()
    assert not list(full.directory.rglob(".*.tmp"))
    assert "Traceback" not in full.log.read_text().partition("resuming")[2].split(" DEBUG ")[0]
    lines = run_killed(
        *(
            word
            for run in (whole, flipped, emptied, full, both, best, deleted, exchanged, replaced)
            for word in (run.directory, "never")
        )
    )
    assert [line.split()[2] for line in lines] == ["0", "0", "0", "0", "1", "1", "1", "1", "1"]
    assert_equal_outputs(full, whole)
    for run in (flipped, emptied):
        assert_equal_outputs(run, whole)
        log = run.log.read_text()
        assert f"{run.last} is damaged; resuming from the previous checkpoint previous.ckpt" in log
        assert "resuming from step" in log
    assert "last.ckpt and previous.ckpt in" in both.read_result()["error"]
    assert "force=true" in both.read_result()["error"]
    assert both.best.read_bytes() == half.best.read_bytes()  # the intact checkpoint is kept
    assert f"{best.best} cannot be read" in best.read_result()["error"]
    assert deleted.read_result()["error"] == f"{deleted.best} was deleted: start again with force=true"
    assert deleted.last.read_bytes() == half.last.read_bytes()  # noticed before the training
    for run, path in ((exchanged, exchanged.last), (replaced, replaced.best)):
        assert run.read_result()["error"] == (
            f"{path} was written by the run {other.hash}, not by {half.hash}: put the run's own checkpoint "
            "back, or start again with force=true"
        )


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_second_process_is_told_which_process_uses_the_run(tmp_path: Path) -> None:
    words = [*TINY_REVERSE, "trainer.max_epochs=1000"]
    with ForkedProcess([ATTNLAB, "train", *words], cwd=tmp_path, env=clean_environment()) as first:
        while not list(tmp_path.glob("outputs/reverse/*/metrics.csv")):
            time.sleep(0.1)
            assert first.poll() is None
        lines = [attnlab("train", *words, *more, folder=tmp_path, code=1) for more in ([], ["force=true"])]
        (directory,) = tmp_path.glob("outputs/reverse/*")
        status = Run(directory).read_result()["status"]
        first.send_signal(signal.SIGTERM)
    for second in lines:
        line = second.stderr.splitlines()[-1]
        assert re.search(
            r"^attnlab: .* is in use by process \d+ on \S+: wait until it ends, or stop it$", line
        )
    assert (status, first.returncode) == ("running", 75)


@pytest.mark.slow
def test_wandb_file_of_a_resumed_run_has_its_id_and_its_whole_curve(make_run: Callable[..., Run]) -> None:
    run = make_run("run", "logger=wandb")
    assert run_killed(run.directory, 30, "never")[1].startswith("ended with 0")
    files = list(run.directory.glob("wandb/offline-run-*/*.wandb"))
    assert len(files) == 2
    assert {path.stem for path in files} == {f"run-{run.hash}"}
    newest = max(files, key=lambda path: path.stat().st_mtime)
    history = read_offline(run.directory, newest.parent.name)["history"]
    for name, series in read_metrics(run.metrics).items():
        assert [(row["trainer/global_step"], row[name]) for row in history if name in row] == series, name


@pytest.mark.slow
def test_interruption_before_training_is_recorded(make_run: Callable[..., Run]) -> None:
    run = make_run("run", "trainer.max_epochs=1000")
    worker = start(run)
    while run.read_result().get("status") != "running":
        time.sleep(0.02)
    worker.send_signal(signal.SIGINT)
    assert worker.wait(100) == 75
    assert run.read_result()["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("reaction", ["pass", "raise KeyError"])
def test_library_that_handles_the_interruption_as_an_error(
    reaction: str, make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "import signal, torch",
        "def build(parameters, **settings):",
        "    try:",
        "        signal.raise_signal(signal.SIGINT)",
        "    except BaseException:",
        f"        {reaction}",
        "    return torch.optim.Adam(parameters, **settings)",
    )
    (tmp_path / "handles.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    run = make_run("run", "trainer.max_epochs=1000", "optimizer._target_=handles.build")
    assert start(run).wait(100) == 75
    assert run.read_result()["status"] == "interrupted"
