from pathlib import Path

import pytest

from attnlab.runs.directory import Run
from commands import LOGGED_REVERSE, attnlab


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="session")
def trained(folder: Path) -> Run:
    """A run trained by the command."""
    tags = "logger.wandb.tags=[pilot,tiny]"
    completed = attnlab(
        "train",
        *LOGGED_REVERSE,
        "checkpoint.keep=3",
        tags,
        folder=folder,
        DRAW_CURVES="1",
    )
    assert completed.returncode == 0, completed.stderr
    (directory,) = (folder / "outputs" / "reverse").iterdir()
    return Run(directory)
