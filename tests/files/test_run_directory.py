"""Locks, identity and files of run directories."""

import errno
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from attnlab.config.compose import compose_run
from attnlab.errors import UserError
from attnlab.files.metrics_file import append_metrics
from attnlab.files.run_directory import Run, locate_run, prepare_run
from attnlab.files.run_identity import identify
from attnlab.files.writing import no_space_left, write_atomically
from run_files import write_run

HOLD = """
import os, sys, time
from pathlib import Path
from attnlab.files.run_directory import Run
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
    run = prepare_run(config)
    result = {"status": "interrupted", "steps": 3}
    run.write_result(**result)
    run.checkpoints.mkdir()
    run.best.write_bytes(b"")
    assert prepare_run(config).read_result() == result
    config.force = True
    prepare_run(config)
    assert sorted(path.name for path in run.directory.iterdir()) == ["config.yaml", "lock"]


def test_interpolations_are_saved_as_their_values(composed: Callable[..., DictConfig]) -> None:
    config = composed()
    config.variant = "seed ${seed}"
    assert OmegaConf.load(prepare_run(config).config).variant == f"seed {config.seed}"
    assert "${" not in prepare_run(config).config.read_text()


@pytest.mark.parametrize(
    "setting",
    [
        *("checkpoint.every_minutes=1", "batching.workers=2", "force=true"),
        *("callbacks.attention_figures.count=0", "callbacks.attention_weights.count=7", "logger=none"),
        *("trainer.log_every_n_steps=1", "+trainer.profiler=simple", "+trainer.enable_progress_bar=false"),
        *("+trainer.max_steps=-1", "+trainer.num_nodes=1", "+trainer.fast_dev_run=false"),
        *(
            "+search.setting_of_tomorrow=null",
            "trainer.accelerator=cpu",
            "trainer.accelerator=gpu",
            "fused=true",
        ),
    ],
)
def test_hash_ignores_settings_without_effect(setting: str, composed: Callable[..., DictConfig]) -> None:
    assert identify(composed(setting.replace("+", "++"))) == identify(composed())


@pytest.mark.parametrize(
    "setting",
    ["checkpoint.monitor=val/bleu", "trainer.max_steps=7", "trainer.num_nodes=2", "data.seed=1", "seed=1"],
)
def test_hash_covers_settings_with_effect(setting: str, composed: Callable[..., DictConfig]) -> None:
    assert identify(composed(f"++{setting}")) != identify(composed())


def test_validations_counted_in_epochs_or_over_them_are_other_runs(
    composed: Callable[..., DictConfig],
) -> None:
    hashes = {
        identify(
            composed(f"++trainer.val_check_interval={interval}", f"++trainer.check_val_every_n_epoch={every}")
        )
        for interval in ("7", "0.5")
        for every in ("1", "null")
    }
    assert len(hashes) == 3  # a share of an epoch is always one of an epoch


def test_recorded_neutral_value_changes_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnlab.files.run_identity.NEUTRAL", {"search.new": 0, "search.switch": False})
    before = identify(DictConfig({"search": {"size": 3}}))
    assert identify(DictConfig({"search": {"size": 3, "new": 0, "switch": False}})) == before
    assert identify(DictConfig({"search": {"size": 3, "new": False}})) != before  # False is no number
    assert identify(DictConfig({"search": {"size": 3, "switch": True}})) != before


def test_new_settings_and_versions_change_no_hash() -> None:
    """If a new setting changes this hash, record its value for earlier runs in `run_identity.NEUTRAL`.

    A change of a default gives another hash, which is written here.
    """
    assert identify(compose_run([])) == "b8173434"


def test_previous_checkpoint_is_used_if_there_is_no_other(composed: Callable[..., DictConfig]) -> None:
    run = prepare_run(composed())
    run.checkpoints.mkdir()
    for checkpoint in (run.previous, run.last, run.best):
        checkpoint.touch()
        assert locate_run(str(run.directory)) == (run, checkpoint)


def test_links_to_runs_and_checkpoints_are_followed(tmp_path: Path) -> None:
    run = Run(tmp_path / "outputs" / "run-0a1b2c3d")
    run.checkpoints.mkdir(parents=True)
    run.config.touch()
    run.best.touch()
    for link, target in (("run", run.directory), ("best", run.best)):
        (tmp_path / link).symlink_to(target)
        assert locate_run(str(tmp_path / link)) == (run, run.best)


def test_temporary_files_are_removed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.checkpoints.mkdir()
    kept = run.last
    for path in (kept, run.checkpoints / ".last.ckpt.tmp", tmp_path / ".result.json.7.tmp"):
        path.write_bytes(b"")
    run.remove_temporary_files()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]


DAMAGED = {
    "": "cannot be read: Expecting value",
    '{"status": "fin': "cannot be read: ",
    "[]": "is not a JSON object",
    '{"status": "done"}': "has the unknown status 'done'",
    '{"status": "finished"}': "has status 'finished' but no metrics",
    '{"status": "finished", "metrics": {"val/loss": null}}': "has status 'finished' but no metrics",
}


def test_damaged_result_is_reported_and_ignored(
    composed: Callable[..., DictConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    config = composed()
    run = prepare_run(config)
    assert capsys.readouterr().err == ""
    for content, problem in DAMAGED.items():
        run.result.write_text(content)
        assert prepare_run(config).read_result() == {}
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"attnlab: {run.result} {problem}"), line
        assert line.endswith("; it is ignored, and the run continues")
        run.write_result("running")
        assert run.read_result() == {"status": "running"}


def test_deleted_outputs_of_a_finished_run_are_listed(tmp_path: Path) -> None:
    run = write_run(tmp_path, scores={"val/loss": 1.0, "test/bleu": 2.0}, sentences=[("a", "a", "a")])
    assert run.missing_outputs() == ["checkpoints/best.ckpt", "predictions/val.jsonl"]
    (run.predictions / "val.jsonl").touch()
    run.checkpoints.mkdir()
    run.best.touch()
    assert run.missing_outputs() == []

    scores = {"test/same/bleu": 2.0, "test/same/attention/entropy": 1.0, "attention/entropy": 1.0}
    named = write_run(tmp_path / "named", scores=scores, sentences=[])
    assert named.missing_outputs() == ["checkpoints/best.ckpt", "predictions/test-same.jsonl"]


def test_identity_is_that_of_resolved_settings() -> None:
    one, two = DictConfig({"size": 8, "width": "${size}"}), DictConfig({"size": 8, "width": 8})
    assert identify(one) == identify(two) != identify(DictConfig({"size": 8, "width": 16}))


def test_full_disk_is_found_behind_other_errors() -> None:
    wrapped, other = RuntimeError("not written"), RuntimeError("not read")
    wrapped.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    other.__context__ = OSError(errno.ENOENT, "No such file or directory")
    outer = ValueError()
    outer.__context__ = wrapped
    assert no_space_left(wrapped)
    assert no_space_left(outer)
    assert not no_space_left(other)
    assert not no_space_left(None)


def test_full_disk_is_an_error_with_the_name_of_the_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    text, metrics = tmp_path / "text", tmp_path / "metrics.csv"
    metrics.write_text("x" * 100)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match=f"'{re.escape(str(text))}'"):
            write_atomically(text, "x" * 101)
        with pytest.raises(OSError, match=f"'{re.escape(str(metrics))}'"):
            append_metrics(metrics, {"val/loss": 0.5}, epoch=0, step=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*tmp_path.iterdir()] == [metrics]


def test_status_is_written_without_free_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path)
    run.write_result("running", packages={"torch": "2.13.0"}, command="attnlab train")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("attnlab.files.run_directory.write_json", full)
    run.write_result("failed", error="no space left")
    result = {"status": "failed", "packages": {"torch": "2.13.0"}, "command": "attnlab train"}
    assert run.read_result() == result | {"error": "no space left"}
    run.result.unlink()
    with pytest.raises(OSError, match="No space"):
        run.write_result("failed")
