"""A sweep on a Ray cluster of two nodes on this machine."""

import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from commands import attnlab
from daemons import daemon, free_ports, kill_all, wait_for
from sweeps_on_clusters import SETTINGS, digests, runs, slow, start, table

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="pip install 'attnlab[ray]'"),
]

RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"]
NODE = "ATTNLAB_TEST_NODE=2"


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start two nodes; yields the environment of Ray's programs, with the address in RAY_ADDRESS."""
    folder = tmp_path_factory.mktemp("ray")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": os.urandom(32).hex(),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_MEMORY_MONITOR": "1",
        "RAY_worker_niceness": "0",  # 15 by default
        "RAY_ADDRESS": address,
    }
    head = [*RAY, "--head", f"--port={address.partition(':')[2]}", "--include-dashboard=false"]
    other = {**environment, **dict([NODE.split("=")])}
    output = folder / "output.txt"
    with daemon([*head, f"--temp-dir={folder}"], folder, environment):
        wait_for(lambda: "Ray runtime started" in output.read_text())
        with daemon([*RAY, f"--address={address}"], folder, other):
            wait_for(lambda: output.read_text().count("Ray runtime started") == 2)
            try:
                yield environment
            finally:
                kill_all(environment["RAY_AUTH_TOKEN"])


def test_sweep_survives_the_end_of_a_node(tmp_path: Path, cluster: dict[str, str]) -> None:
    grid = ("attention=none,dot", "hydra/launcher=ray", "hydra.launcher.ray.init.address=auto")
    sweep = start(tmp_path, cluster, *SETTINGS, *grid, *slow(tmp_path))
    try:
        wait_for(lambda: sum(run.last.exists() for run in runs(tmp_path).values()) == 2)
        kill_all(NODE)
        (tmp_path / "slow").unlink()
        output, errors = sweep.communicate(timeout=240)
    finally:
        sweep.kill()
        sweep.communicate()
    assert sweep.returncode == 0, errors
    assert table(output) == dict.fromkeys(("none-seed0", "dot-seed0"), "finished")
    starts = [run.log.read_text().count("importing PyTorch") for run in runs(tmp_path).values()]
    assert sorted(starts) == [1, 2]
    assert sum("resuming from step" in run.log.read_text() for run in runs(tmp_path).values()) == 1
    assert not re.search("Traceback", errors)

    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    attnlab("train", "-m", *SETTINGS, grid[0], folder=undisturbed)
    assert digests(tmp_path) == digests(undisturbed)
