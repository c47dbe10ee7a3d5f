"""What stands in a README of experiments/ is what its command prints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


@pytest.mark.slow
def test_the_comparison_of_scores_is_made_by_its_command(tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    shutil.copytree(EXPERIMENTS, folder)
    readme, figure = folder / "scores" / "README.md", folder / "scores" / "scores.svg"
    figure.unlink()
    command = ["make", "-C", str(folder), "scores", f"PYTHON={sys.executable}"]
    subprocess.run(command, check=True, capture_output=True)
    assert readme.read_text() == (EXPERIMENTS / "scores" / "README.md").read_text()
    assert figure.is_file()


@pytest.mark.parametrize(
    ("text", "printed", "told"),
    [
        ("# No marks\n", "new", "has no place for it"),
        ("<!-- made by its command -->\nold\n<!-- until here -->\n", "", "nothing was printed"),
    ],
)
def test_a_readme_is_left_alone_where_nothing_can_be_put(
    tmp_path: Path, text: str, printed: str, told: str
) -> None:
    path = tmp_path / "README.md"
    path.write_text(text)
    command = [sys.executable, str(EXPERIMENTS / "readme.py"), str(path)]
    done = subprocess.run(command, input=printed, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert told in done.stderr
    assert path.read_text() == text


def test_what_was_printed_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- made by its command -->\nold\n<!-- until here -->\nafter\n")
    for _ in range(2):
        command = [sys.executable, str(EXPERIMENTS / "readme.py"), str(path)]
        subprocess.run(command, input="new\n", text=True, check=True)
        marked = "before\n<!-- made by its command -->\n\nnew\n\n<!-- until here -->\nafter\n"
        assert path.read_text() == marked
