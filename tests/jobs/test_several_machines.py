"""One run on several machines: launchers that share it, and processes that must not."""

import errno
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.errors import InUseError
from attnlab.files.lock import lock_directory
from attnlab.files.run_directory import Run
from commands import TINY_REVERSE, attnlab, clean_environment
from daemons import free_ports

BIN = Path(sys.executable).parent


@pytest.mark.clusters
def test_two_launchers_of_torchrun_train_with_the_digest_of_one_process(tmp_path: Path) -> None:
    settings = (*TINY_REVERSE, "trainer.max_epochs=1", "batching.shards=2")
    attnlab("train", *settings, "name=alone", folder=tmp_path)
    nodes = ("trainer.num_nodes=2", "trainer.strategy=ddp")
    prepared = attnlab("train", "--prepare", *settings, *nodes, "name=both", folder=tmp_path)
    run = Run(Path(prepared.stdout.strip()))
    assert not run.result.exists()
    command = [
        *(str(BIN / "torchrun"), "--nnodes=2", "--nproc-per-node=1", "--master-addr=127.0.0.1"),
        *(f"--master-port={free_ports(1)[0]}", "-m", "attnlab.jobs.worker", str(run.directory)),
    ]
    launchers = [
        subprocess.Popen(
            [*command[:2], f"--node-rank={rank}", *command[2:]],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        outputs = [launcher.communicate(timeout=240)[0] for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.kill()
    assert [launcher.returncode for launcher in launchers] == [0, 0], outputs
    (single,) = (tmp_path / "outputs" / "alone").iterdir()
    assert run.read_result()["digest"] == Run(single).read_result()["digest"]


def test_prepare_is_for_one_run(tmp_path: Path) -> None:
    refused = attnlab("train", "--prepare", "-m", "seed=0,1", folder=tmp_path, code=2)
    assert refused.stderr == "attnlab: --prepare prints the directory of one run: remove -m\n"
    under_torchrun = attnlab("train", folder=tmp_path, code=2, TORCHELASTIC_RUN_ID="none")
    assert "create the run directory with attnlab train --prepare, then run" in under_torchrun.stderr
    assert not [*tmp_path.iterdir()]


HOLDER = """
import sys
from pathlib import Path
from attnlab.files.lock import lock_directory
with lock_directory(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a folder a second time needs root")
def test_processes_with_different_mounts_cannot_own_one_run(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other mount"
    run.mkdir()
    other.mkdir()
    unshare = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "-"]
    command = [*unshare, str(run), str(other), sys.executable, "-c", HOLDER, str(other)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        if holder.stdout.readline() != "locked\n":
            pytest.skip("this machine allows no mounts")
        assert not (other / "lock").exists()  # visible in the other process only
        with pytest.raises(InUseError, match=rf"in use by process {holder.pid} "), lock_directory(run):
            pass
        holder.stdin.close()
    with lock_directory(run):
        pass


def test_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with lock_directory(tmp_path):
        pass
    assert re.fullmatch(
        r"attnlab: \S+ cannot be locked \(No locks available\): a second process that trains this run would "
        "not be noticed\n",
        capsys.readouterr().err,
    )
