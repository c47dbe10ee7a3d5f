"""Small sweeps for the tests of clusters."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from attnlab.files.run_directory import Run
from commands import TINY_REVERSE, clean_environment
from forked import ATTNLAB, ForkedProcess

SETTINGS = (*TINY_REVERSE, "trainer.max_epochs=2")

SLOW = """
import time
from pathlib import Path

from lightning import Callback


class Slow(Callback):
    def __init__(self, run): ...

    def on_train_batch_end(self, *_):
        if Path("slow").exists():
            time.sleep(1)
"""
"""A callback that delays every batch while a file exists. It changes no result."""


def slow(folder: Path) -> tuple[str, ...]:
    """Return settings with which runs are slow, and save often, until the file `slow` is removed."""
    (folder / "slow.py").write_text(SLOW)
    (folder / "slow").touch()
    callback = ("+callbacks.slow._target_=slow.Slow", "+callbacks.slow._partial_=true")
    return (*callback, "checkpoint.every_minutes=0.01")


def start(folder: Path, cluster: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start a sweep."""
    # conf/hydra/launcher/submitit_slurm.yaml has the name of its plugin's schema, of which Hydra 1.3 warns
    warning = {"HYDRA_DEPRECATION_WARNINGS_AS_ERRORS": ""}
    return ForkedProcess(
        [ATTNLAB, "train", "-m", *arguments],
        cwd=folder,
        env=clean_environment(**warning, **cluster),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def runs(folder: Path) -> dict[str, Run]:
    """Return the runs by names such as dot-seed0."""
    found = (folder / "outputs" / "reverse").glob("*-seed*")
    return {path.name.rpartition("-")[0]: Run(path) for path in found}


def digests(folder: Path) -> dict[str, str]:
    return {name: run.read_result()["digest"] for name, run in runs(folder).items()}


def table(output: str) -> dict[str, str]:
    """Return the states in the final table of a sweep."""
    return dict(re.findall(r"^│ (\w+-seed\d)-\w+ +│ (\w+) ", output, re.MULTILINE))
