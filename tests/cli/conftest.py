import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from attnlab.files.run_directory import Run
from commands import LOGGED_REVERSE, attnlab


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="session")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run trained by the command, once for all workers of pytest-xdist, each of which has a copy."""
    test_run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "alone")
    shared = tmp_path_factory.getbasetemp().parent / f"trained-{test_run}"
    with FileLock(f"{shared}.lock"):
        if test_run == "alone" or not shared.exists():
            train(folder)
            if test_run != "alone":
                shutil.copytree(folder / "outputs", shared, symlinks=True)
        else:
            shutil.copytree(shared, folder / "outputs", symlinks=True, dirs_exist_ok=True)
    (directory,) = (folder / "outputs" / "reverse").iterdir()
    return Run(directory)


def train(folder: Path) -> None:
    tags = "logger.wandb.tags=[pilot,tiny]"
    overrides = (*LOGGED_REVERSE, tags)
    attnlab("train", *overrides, folder=folder, DRAW_CURVES="1")
