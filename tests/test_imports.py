"""The order of imports between packages, and which modules start without torch."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import attnlab
from attnlab.cli.main import commands

SOURCE = Path(attnlab.__file__).parent
MODULES = {"__init__", "__main__", "errors", "settings", "testing", "types"}
"""The only modules beside the packages."""

ORDER = (
    {"conf"},
    {"errors", "settings", "types"},
    {"files"},
    {"metrics"},
    {"data", "nn"},
    {"testing"},
    {"fast"},
    {"decoding"},
    {"report"},
    {"explain"},
    {"config"},
    {"training"},
    {"jobs"},
    {"api"},
    {"deploy"},
    {"cli"},
    {"__main__"},
)
"""A package may import itself and the packages of earlier rows."""

NOT_IMPORTED = {
    "nn": {"errors", "files", "metrics", "fast"},  # plain torch
    "report": {"data", "nn", "decoding"},  # reads run directories, loads no models
}
"""Earlier packages that a package must nevertheless not import."""

ON_CALL = {"files/predictions.py": {"report"}}
"""Packages that methods of a record import when they are called, later ones too."""


def imported_names(path: Path) -> set[str]:
    """Return the names below `attnlab.` that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.removeprefix("attnlab.") for name in names if name.startswith("attnlab.")} - {"__version__"}


@pytest.mark.parametrize("row", range(len(ORDER)), ids=lambda row: "-".join(sorted(ORDER[row])))
def test_packages_import_earlier_packages_only(row: int) -> None:
    earlier = set().union(*ORDER[:row])
    for package in ORDER[row]:
        allowed = (earlier | {package}) - NOT_IMPORTED.get(package, set())
        folder = SOURCE / package
        for path in folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]:
            imported = {name.partition(".")[0] for name in imported_names(path)}
            on_call = ON_CALL.get(path.relative_to(SOURCE).as_posix(), set())
            assert imported <= allowed | on_call, path


def test_modules_import_each_other_in_no_circle() -> None:
    files = {
        path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__"): path
        for path in SOURCE.rglob("*.py")
    }
    graph = {
        module: {
            name if name in files else name.rpartition(".")[0]
            for name in imported_names(path)
            if name.partition(".")[0] not in ON_CALL.get(path.relative_to(SOURCE).as_posix(), ())
        }
        for module, path in files.items()
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_module_belongs_to_a_package() -> None:
    assert {path.stem for path in SOURCE.glob("*.py")} == MODULES
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages | MODULES == set().union(*ORDER) | {"__init__"}


WITHOUT_TORCH = (
    "attnlab",
    "attnlab.api.studies",
    "attnlab.api.training",
    "attnlab.cli.main",
    "attnlab.cli.report",
    "attnlab.config.compose",
    "attnlab.report.workspace",
    "attnlab.files.run_directory",
    "attnlab.jobs.hyperparameter_search",
    "attnlab.jobs.slot_scheduler",
    "hydra_plugins.attnlab_launchers",
)
"""Modules that start quickly."""


@pytest.mark.slow
def test_modules_and_help_import_no_torch() -> None:
    """One process imports all modules and prints all help texts, and checks after each of them."""
    code = f"""
import importlib, sys
from attnlab.cli.main import run

def check(name):
    assert not {{"torch", "lightning", "pandas", "scipy.stats"}} & {{*sys.modules}}, name

for name in {WITHOUT_TORCH}:
    importlib.import_module(name)
    check(name)
for command in {commands()}:
    try:
        run([command, "--help"])
    except SystemExit as end:
        assert end.code in (0, None)
    check(command)
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    for command in commands():
        assert f"attnlab {command}" in completed.stdout


@pytest.mark.parametrize("package", ["data", "nn", "training", "decoding"])
def test_importing_a_library_module_sets_no_environment_variable(package: str) -> None:
    for path in (SOURCE / package).rglob("*.py"):
        for statement in ast.parse(path.read_text()).body:
            if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                assert "os.environ" not in ast.unparse(statement), f"{path}: {ast.unparse(statement)}"
