"""Sweeps on a real Slurm cluster of two nodes, which runs on this machine."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from attnlab.runs.launcher import INTERRUPTED
from commands import attnlab
from daemons import wait_for
from slurm_cluster import missing_programs, slurm, slurm_cluster
from sweeps_on_clusters import SETTINGS, digests, runs, slow, start, table

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing_programs()), reason="apt install slurm-wlm munge"),
    pytest.mark.skipif(find_spec("submitit") is None, reason="pip install 'attnlab[slurm]'"),
]

LAUNCHER = (
    "hydra/launcher=submitit_slurm",
    "hydra.launcher.gpus_per_node=null",
    "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.mem_gb=1",
    "hydra.launcher.timeout_min=5",
)
GRID = ("attention=none,dot", "seed=0,1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as environment:
        yield environment


@pytest.fixture
def ask(cluster: dict[str, str]) -> Callable[..., str]:
    """Run a command of Slurm."""
    return lambda *command: slurm(*command, environment=cluster)


def jobs(ask: Callable[..., str]) -> dict[str, str]:
    """Return the ids of the queued jobs by the names of their runs."""
    numbered = dict(enumerate(("none-seed0", "none-seed1", "dot-seed0", "dot-seed1")))
    queued = ask("squeue", "--noheader", "--array", "--format=%i").split()
    return {numbered[int(job.partition("_")[2])]: job for job in queued}


def restarts(job: str, ask: Callable[..., str]) -> int:
    """Return how often Slurm has queued a job again."""
    return int(re.search(r"Restarts=(\d+)", ask("scontrol", "show", "job", job))[1])  # type: ignore[index]


def test_disturbed_sweep_has_the_results_of_an_undisturbed_one(
    tmp_path: Path, cluster: dict[str, str], ask: Callable[..., str]
) -> None:
    arguments = (*SETTINGS, *GRID, *LAUNCHER, *slow(tmp_path), "hydra.launcher.signal_delay_s=100")
    sweep = start(tmp_path, cluster, *arguments)
    try:
        wait_for(lambda: sum(run.last.exists() for run in runs(tmp_path).values()) == 4)
        queued = jobs(ask)
        cancelled, limited, failed = "none-seed0", "none-seed1", "dot-seed0"
        node = ask("squeue", "-h", f"--jobs={queued[failed]}", "--format=%N")
        ask("scontrol", "update", f"JobId={queued[limited]}", "TimeLimit=2")
        ask("scancel", queued[cancelled])
        ask("scontrol", "update", f"NodeName={node}", "State=down", "Reason=test")
        wait_for(lambda: restarts(queued[failed], ask) == 1)
        ask("scontrol", "update", f"NodeName={node}", "State=resume")
        wait_for(lambda: restarts(queued[limited], ask) == 1)
        ask("scontrol", "update", f"JobId={queued[limited]}", "TimeLimit=5")
        (tmp_path / "slow").unlink()
        output, errors = sweep.communicate(timeout=240)
    finally:
        sweep.kill()
        sweep.wait()
    assert sweep.returncode == INTERRUPTED, errors
    others = dict.fromkeys(runs(tmp_path), "finished")
    assert table(output) == {**others, cancelled: "interrupted"}

    again = start(tmp_path, cluster, *arguments)
    output, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert "3 of 4 already finished" in errors
    assert set(table(output).values()) == {"finished"}
    for name in (cancelled, limited, failed):
        assert runs(tmp_path)[name].log.read_text().count("resuming from step") >= 1

    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    completed = attnlab("train", "-m", *SETTINGS, *GRID, folder=undisturbed)
    assert completed.returncode == 0, completed.stderr
    assert digests(tmp_path) == digests(undisturbed)


def test_two_tasks_of_a_job_train_with_the_digest_of_one_process(
    tmp_path: Path, cluster: dict[str, str]
) -> None:
    tasks = ("hydra.launcher.tasks_per_node=2", "trainer.devices=2", "trainer.strategy=ddp")
    address = ("hydra.launcher.setup=['export MASTER_ADDR=127.0.0.1']",)  # nodes of the tests have no address
    both = (*SETTINGS, "batching.shards=2")
    job = start(tmp_path, cluster, *both, *LAUNCHER, *tasks, *address)
    output, errors = job.communicate(timeout=240)
    assert job.returncode == 0, errors
    assert table(output) == {"additive-seed0": "finished"}
    (run,) = runs(tmp_path).values()
    assert "distributed_backend=gloo" in run.log.read_text()

    alone = tmp_path / "alone"
    alone.mkdir()
    completed = attnlab("train", *both, folder=alone)
    assert completed.returncode == 0, completed.stderr
    assert digests(tmp_path) == digests(alone)
    assert list(runs(tmp_path)) == list(runs(alone))


def test_reason_to_wait_is_printed_and_ctrl_c_removes_the_jobs(
    tmp_path: Path, cluster: dict[str, str], ask: Callable[..., str]
) -> None:
    partition = "hydra.launcher.partition=short"
    sweep = start(tmp_path, cluster, *SETTINGS, "seed=0,1", *LAUNCHER, partition)
    assert sweep.stderr is not None
    try:
        line = next(line for line in sweep.stderr if "Slurm" in line)
        # Slurm calls it PartitionTimeLimit, or PartitionConfig soon after its start
        assert re.fullmatch(
            r"Slurm lets jobs wait: Partition(TimeLimit|Config); squeue shows which ones", line.strip()
        )
        sweep.send_signal(signal.SIGINT)
        output, errors = sweep.communicate(timeout=60)
    finally:
        sweep.kill()
        sweep.wait()
    assert sweep.returncode == INTERRUPTED
    assert "Traceback" not in errors
    assert set(table(output).values()) == {"waiting"}
    assert ask("squeue", "--noheader") == ""
