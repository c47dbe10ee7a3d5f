"""Sweeps with other launchers, in the forms that need no cluster."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from attnlab.files.run_directory import Run
from commands import TINY_REVERSE, attnlab


@pytest.mark.slow
@pytest.mark.clusters
@pytest.mark.skipif(find_spec("submitit") is None, reason="pip install 'attnlab[slurm]'")
def test_sweep_of_local_processes_of_submitit(tmp_path: Path) -> None:
    tiny = [override for override in TINY_REVERSE if not override.startswith("optimizer.lr=")]
    overrides = [*tiny, "trainer.max_epochs=1", "optimizer=sgd"]
    overrides.append("hydra/launcher=submitit_local")
    broken = attnlab("train", "-m", *overrides, "optimizer.lr=1e38,0.01", folder=tmp_path, code=1)
    assert "Traceback" not in broken.stderr
    assert re.search(r"^failed .*: The (loss|gradient norm) is", broken.stdout, re.MULTILINE)
    table = re.findall(r"^│ \S+ +│ (\w+) ", broken.stdout, re.MULTILINE)
    assert table == ["finished", "failed"]
    runs = [Run(path) for path in (tmp_path / "outputs" / "reverse").iterdir()]
    statuses = {run.read_config().optimizer.lr: run.read_result()["status"] for run in runs}
    assert statuses == {1e38: "failed", 0.01: "finished"}  # the other job continued
    assert "UserWarning" not in broken.stderr
    for run in runs:
        assert run.read_result()["command"].startswith("attnlab train -m data.symbols=5")


def test_launcher_that_is_not_installed(tmp_path: Path) -> None:
    absent = "hydra.launcher._target_=hydra_plugins.absent_launcher.AbsentLauncher"
    completed = attnlab("train", "-m", *TINY_REVERSE, "seed=0,1", absent, folder=tmp_path, code=2)
    assert (
        "This launcher is not installed: pip install 'attnlab[slurm]' or 'attnlab[ray]'" in completed.stderr
    )
    assert "Traceback" not in completed.stderr
