"""Versions, machine and code that a run is recorded with."""

import os
import subprocess
from pathlib import Path

import pytest

from attnlab.training.environment import Code, code_in, environment


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
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "outputs").mkdir()
    (checkout / "outputs" / "ignored.py").write_text("")
    assert code_in(checkout) == Code(folder=str(checkout), commit=commit, changes=None)

    (checkout / "mechanism.py").write_text("size = 2\n")
    changed = code_in(checkout)
    assert changed.commit == commit
    (checkout / "new.py").write_text("size = 3\n")
    added = code_in(checkout)
    (checkout / "new.py").write_text("size = 4\n")
    digests = [None if code is None else code.changes for code in (changed, added, code_in(checkout))]
    assert None not in digests
    assert len(set(digests)) == 3


def test_unreadable_files_count_by_their_names(checkout: Path) -> None:
    digests = []
    for name in ("new.py", ".#new.py", os.fsdecode(b"caf\xe9.py")):
        (checkout / name).symlink_to("nowhere")
        code = code_in(checkout)
        digests.append(code.changes)
    assert len(set(digests)) == 3


def test_folder_without_commit_has_no_code(tmp_path: Path) -> None:
    assert code_in(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert code_in(tmp_path) is None


def test_package_that_is_not_tracked_has_no_commit(checkout: Path) -> None:
    """An environment inside another project is not part of that project's commit."""
    installed = checkout / ".venv" / "attnlab" / "module.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    assert code_in(installed.parent, tracks=installed) is None
    assert code_in(checkout, tracks=checkout / "mechanism.py") is not None


def test_environment_names_machine_versions_and_project(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    recorded = environment()
    assert recorded["cpu"]
    assert recorded["cpus"] >= 1
    assert {"torch", "lightning", "numpy"} <= set(recorded["packages"])
    assert recorded["project"] == {
        "folder": str(checkout),
        "commit": git(checkout, "rev-parse", "HEAD"),
        "changes": None,
    }
    monkeypatch.chdir(Path(__file__).parent)
    recorded = environment()
    assert recorded["project"] is None
    assert recorded["git_commit"] == git(Path(__file__).parent, "rev-parse", "HEAD")
    code = code_in(Path(__file__).parent)
    assert recorded["git_changes"] == code.changes
