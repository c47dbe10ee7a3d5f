"""Versions, machine and code that a run is recorded with."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attnlab.training.environment import environment, git_state


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git repository with one committed file."""
    (tmp_path / "mechanism.py").write_text("size = 1\n")
    (tmp_path / ".gitignore").write_text("outputs/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_code_is_recorded_by_commit_and_digest_of_changes(checkout: Path) -> None:
    commit, file = git(checkout, "rev-parse", "HEAD"), checkout / "mechanism.py"
    (checkout / "outputs").mkdir()
    (checkout / "outputs" / "ignored.py").write_text("")
    assert git_state(file) == (commit, None)

    digests = []
    file.write_text("size = 2\n")
    digests.append(git_state(file)[1])
    for text in ("size = 3\n", "size = 4\n"):
        (checkout / "new.py").write_text(text)
        digests.append(git_state(file)[1])
    for name in (".#new.py", os.fsdecode(b"caf\xe9.py")):
        (checkout / name).symlink_to("nowhere")
        digests.append(git_state(file)[1])
    assert git_state(file)[0] == commit
    assert None not in digests
    assert len(set(digests)) == 5


def test_package_that_is_not_tracked_has_no_commit(checkout: Path, tmp_path: Path) -> None:
    """An environment inside another project is not part of that project's commit."""
    installed = checkout / ".venv" / "attnlab" / "module.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    assert git_state(installed) == (None, None)


def test_environment_names_machine_and_versions() -> None:
    recorded = environment()
    assert recorded["cpu"].endswith(f", {torch.backends.cpu.get_cpu_capability()}")
    assert recorded["cpus"] >= 1
    assert {"torch", "lightning", "numpy"} <= set(recorded["packages"])
    assert recorded["git_commit"] == git(Path(__file__).parent, "rev-parse", "HEAD")


def test_vector_instructions_that_pytorch_may_use_are_recorded() -> None:
    """They change how sums are rounded, and CPUs of one name can have different ones."""
    command = "from attnlab.training.environment import cpu_name; print(cpu_name())"
    variables = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    name = subprocess.run([sys.executable, "-c", command], env=variables, stdout=subprocess.PIPE, check=True)
    assert name.stdout.endswith(b", DEFAULT\n")
