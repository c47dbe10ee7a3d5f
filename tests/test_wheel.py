"""The wheel and the citation file describe the current version completely."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import yaml

from attnlab import __version__

ROOT = Path(__file__).parents[1]


def test_wheel_contains_code_configuration_and_type_marker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("attnlab-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    code = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    conf = {f"attnlab/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert code | conf <= packed
    assert "attnlab/py.typed" in packed


def test_citation_names_the_current_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["license"] == "Apache-2.0"
