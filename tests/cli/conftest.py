import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from attnlab.cli import main
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
            attnlab(
                "train", *LOGGED_REVERSE, "logger.wandb.tags=[pilot,tiny]", folder=folder, DRAW_CURVES="1"
            )
            if test_run != "alone":
                shutil.copytree(folder / "outputs", shared, symlinks=True)
        else:
            shutil.copytree(shared, folder / "outputs", symlinks=True, dirs_exist_ok=True)
    (directory,) = (folder / "outputs" / "reverse").iterdir()
    return Run(directory)


@pytest.fixture
def run_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, list[str], str]]:
    """Run a command in this process on standard input.

    Returns its exit code, the lines of its output, and its messages.
    """

    def run(stdin: str | bytes, *arguments: str) -> tuple[int, list[str], str]:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        code = main.run([*arguments])
        output, errors = capsys.readouterr()
        return code, output.splitlines(), errors

    return run
