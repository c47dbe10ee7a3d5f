"""Sweeps on a real Slurm cluster of two nodes, which runs on this machine."""

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from attnlab.errors import INTERRUPTED
from attnlab.jobs.status import state
from commands import attnlab
from daemons import processes, wait_for
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
    """Return the ids of the queued jobs by the names of their runs, in the order of the sweep."""
    names = ("none-seed0", "none-seed1", "dot-seed0", "dot-seed1")
    return dict(zip(names, sorted(ask("squeue", "-h", "--array", "--format=%i").split()), strict=True))


def restarts(job: str, ask: Callable[..., str]) -> int:
    """Return how often Slurm has queued a job again."""
    return int(re.search(r"Restarts=(\d+)", ask("scontrol", "show", "job", job))[1])


def test_disturbed_sweep_has_the_results_of_an_undisturbed_one(
    tmp_path: Path, cluster: dict[str, str], ask: Callable[..., str]
) -> None:
    arguments = (*SETTINGS, *GRID, *LAUNCHER, *slow(tmp_path), "hydra.launcher.signal_delay_s=100")
    sweep = start(tmp_path, cluster, *arguments)
    try:
        wait_for(lambda: sum(run.last.exists() for run in runs(tmp_path).values()) == 4)
        queued = jobs(ask)
        cancelled, limited, *failed = queued
        numbers = {name: ask("squeue", "-h", f"--jobs={job}", "--format=%A") for name, job in queued.items()}
        assert all(processes(f"slurmstepd: [{number}.") for number in numbers.values())
        (node,) = {ask("squeue", "-h", f"--jobs={queued[name]}", "--format=%N") for name in failed}
        ask("scontrol", "update", f"JobId={queued[limited]}", "TimeLimit=2")
        ask("scancel", queued[cancelled])
        ask("scontrol", "update", f"NodeName={node}", "State=down", "Reason=test")
        wait_for(lambda: all(restarts(queued[name], ask) == 1 for name in failed))
        ask("scontrol", "hold", *(queued[name] for name in failed))
        # Slurm holds a job for ever if it starts on a node where its first attempt still runs
        wait_for(lambda: not any(processes(f"slurmstepd: [{numbers[name]}.") for name in failed))
        ask("scontrol", "update", f"NodeName={node}", "State=resume")
        wait_for(lambda: restarts(queued[limited], ask) == 1)
        ask("scontrol", "update", f"JobId={queued[limited]}", "TimeLimit=5")
        (tmp_path / "slow").unlink()
        wait_for(lambda: state(runs(tmp_path)[limited]) == "finished")
        with pytest.raises(subprocess.TimeoutExpired):  # waits for the interrupted jobs, which are queued
            sweep.wait(10)
        ask("scontrol", "release", *(queued[name] for name in failed))
        output, errors = sweep.communicate(timeout=240)
    finally:
        sweep.kill()
        sweep.communicate()
    assert sweep.returncode == INTERRUPTED, errors
    others = dict.fromkeys(runs(tmp_path), "finished")
    assert table(output) == {**others, cancelled: "interrupted"}

    again = start(tmp_path, cluster, *arguments)
    output, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert "3 of 4 already finished" in errors
    assert set(table(output).values()) == {"finished"}
    for name in queued:
        assert runs(tmp_path)[name].log.read_text().count("resuming from step") >= 1

    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    attnlab("train", "-m", *SETTINGS, *GRID, folder=undisturbed)
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
    attnlab("train", *both, folder=alone)
    assert digests(tmp_path) == digests(alone)
    assert list(runs(tmp_path)) == list(runs(alone))


def test_reason_to_wait_is_printed_and_ctrl_c_removes_the_jobs(
    tmp_path: Path, cluster: dict[str, str], ask: Callable[..., str]
) -> None:
    partition = "hydra.launcher.partition=short"
    sweep = start(tmp_path, cluster, *SETTINGS, "seed=0,1", *LAUNCHER, partition)
    assert sweep.stderr is not None
    try:
        printed = []
        for line in sweep.stderr:
            printed.append(line)
            if "Slurm" in line:
                break
        else:
            pytest.fail("".join(printed))
        # Slurm calls it PartitionTimeLimit, or PartitionConfig soon after its start
        assert re.fullmatch(
            r"Slurm lets jobs wait: Partition(TimeLimit|Config); squeue shows which ones", line.strip()
        )
        sweep.send_signal(signal.SIGINT)
        output, errors = sweep.communicate(timeout=60)
    finally:
        sweep.kill()
        sweep.communicate()
    assert sweep.returncode == INTERRUPTED
    assert "Traceback" not in errors
    assert set(table(output).values()) == {"waiting"}
    assert ask("squeue", "--noheader") == ""
