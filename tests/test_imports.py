"""Imports run one way, and the side that composes stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attnlab

SOURCE = Path(attnlab.__file__).parent
MAY_IMPORT = {
    "errors": set(),
    "types": set(),
    "runs": {"errors"},
    "compose": {"errors"},
    "schedules": set(),
    "figures": set(),
    "nn": {"types"},
    "data": {"types", "errors"},
    "search": {"types", "nn"},
    "metrics": {"types", "errors"},
    "tracking": {"runs"},
    "checkpoints": {"data", "errors"},
    "module": {"types", "data", "metrics", "nn", "schedules", "search"},
    "callbacks": {"data", "errors", "figures", "module", "runs", "tracking", "types"},
    "build": {"callbacks", "checkpoints", "data", "errors", "metrics", "module", "nn", "runs"},
    "train": {"build", "callbacks", "checkpoints", "metrics", "runs", "tracking"},
    "evaluate": {"build", "callbacks", "compose", "data", "errors", "figures", "metrics", "module", "runs"},
    "predict": {"build", "data", "errors", "figures", "nn", "runs", "search", "types"},
    "worker": {"build", "callbacks", "errors", "runs", "train"},
    "cli": {"compose", "errors", "evaluate", "predict", "runs"},
}
"""What each part of the package may import of the others; each may import itself."""


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_one_way(path: Path) -> None:
    if path == SOURCE / "__init__.py":
        return
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "attnlab":
            imported |= {alias.name for alias in node.names} - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnlab."):
            imported.add(str(node.module).split(".")[1])
    assert imported <= MAY_IMPORT[part(path)] | {part(path)}


def test_there_are_no_circles() -> None:
    seen: set[str] = set()
    waiting = dict(MAY_IMPORT)
    while waiting:
        ready = {name for name, needs in waiting.items() if needs <= seen}
        assert ready, waiting
        seen |= ready
        waiting = {name: needs for name, needs in waiting.items() if name not in ready}


@pytest.mark.parametrize("module", ["attnlab", "attnlab.cli", "attnlab.compose", "attnlab.runs"])
def test_the_composing_side_imports_no_torch(module: str) -> None:
    code = f"import sys, {module}; assert 'torch' not in sys.modules and 'lightning' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
