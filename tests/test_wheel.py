"""The wheel and the citation file describe the current version completely."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from attnlab import __version__
from commands import TINY_REVERSE, clean_environment

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("attnlab-*.whl")
    return wheel


def test_wheel_contains_code_configuration_and_type_marker(wheel: Path) -> None:
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


def test_description_has_no_links_to_files_beside_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        description = archive.read(name).decode().split("\n\n", maxsplit=1)[1]
    assert description.startswith("# attnlab")
    targets = [*re.findall(r"\]\(([^)]+)\)", description), *re.findall(r'src="([^"]+)"', description)]
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_links_of_the_readme_are_replaced_by_addresses() -> None:
    replace_links = runpy.run_path(str(ROOT / "hatch_build.py"))["replace_links"]
    text = (
        '[A page](docs/a.md), [another](https://b.org), 9 [7, 9] (n=5)\n<img src="c.png" width="3" alt="C">'
    )
    source = "https://code.org/attnlab"
    assert replace_links(text, f"{source}/", "v1.0").splitlines() == [
        f"[A page]({source}/blob/v1.0/docs/a.md), [another](https://b.org), 9 [7, 9] (n=5)",
        f'<img src="{source}/raw/v1.0/c.png" alt="C">',
    ]
    assert replace_links(text, None, "v1.0").splitlines() == [
        "A page, [another](https://b.org), 9 [7, 9] (n=5)",
        "*C*",
    ]


@pytest.mark.slow
def test_installed_wheel_trains_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """The dependencies are those of this environment; attnlab itself is the installed wheel."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    install = ("install", "--quiet", "--no-deps", "--no-index", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    dependencies = [
        path for path in sys.path if path.endswith("site-packages") or not Path(path).is_relative_to(ROOT)
    ]
    (packages / "dependencies.pth").write_text("\n".join(dependencies))  # their own .pth files are not read

    folder = tmp_path / "empty"
    folder.mkdir()

    def run(*command: object) -> None:
        environment = clean_environment()
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [*map(str, command)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    run(python, "-m", "attnlab", "train", *TINY_REVERSE, "trainer.max_epochs=1")
    (result,) = folder.glob("outputs/reverse/additive-seed0-*/result.json")
    recorded = json.loads(result.read_text())
    assert recorded["status"] == "finished"
    assert recorded["git_commit"] is None  # not the checkout of the tests
    run(python.with_name("attnlab"), "report", "outputs")
    assert (folder / "outputs" / "report.html").is_file()


def test_citation_names_the_current_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["license"] == "Apache-2.0"


def test_lowest_versions_are_those_of_the_metadata() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    lowest = {re.sub(r">=([\d.]+).*", r"==\1", dependency) for dependency in dependencies}
    lines = (ROOT / "tests" / "lowest.txt").read_text().splitlines()
    assert {line for line in lines if not line.startswith("#")} == lowest
