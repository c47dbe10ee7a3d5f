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
    "attended": {"runs"},
    "settings": {"errors"},
    "nn": {"types"},
    "data": {"types", "errors"},
    "search": {"types", "nn"},
    "metrics": {"types", "errors", "data"},
    "tracking": {"runs"},
    "checkpoints": {"data", "errors"},
    "rerank": {"types", "data"},
    "module": {"types", "data", "metrics", "nn", "rerank", "schedules", "search"},
    "callbacks": {"attended", "data", "errors", "figures", "module", "runs", "tracking", "types"},
    "build": {
        "callbacks",
        "checkpoints",
        "data",
        "errors",
        "metrics",
        "module",
        "nn",
        "runs",
        "settings",
        "tracking",
    },
    "train": {"build", "callbacks", "checkpoints", "errors", "metrics", "runs", "tracking"},
    "evaluate": {
        "build",
        "callbacks",
        "compose",
        "data",
        "errors",
        "figures",
        "metrics",
        "module",
        "runs",
        "settings",
    },
    "terminal": {"figures"},
    "report": {"attended", "dashboard", "errors", "figures", "metrics", "runs"},
    "predict": {
        "attended",
        "build",
        "data",
        "errors",
        "figures",
        "nn",
        "report",
        "rerank",
        "runs",
        "search",
        "terminal",
        "types",
    },
    "launch": {"errors", "runs"},
    "slots": {"errors"},
    "jobs": {"errors", "launch", "runs"},
    "dispatch": {"errors", "jobs", "launch", "runs", "slots"},
    "check": {"build", "data", "errors", "launch", "runs"},
    "worker": {"build", "callbacks", "errors", "launch", "runs", "tracking", "train"},
    "timing": {"build", "data", "errors", "module", "nn", "schedules", "search", "types"},
    "bench": {"build", "compose", "errors", "runs", "timing", "types"},
    "dashboard": {"errors"},
    "tune": {"compose", "errors", "jobs", "launch", "runs"},
    "cli": {"bench", "compose", "errors", "evaluate", "jobs", "launch", "predict", "report", "tune"},
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


@pytest.mark.parametrize(
    "module",
    [
        "attnlab",
        "attnlab.cli",
        "attnlab.compose",
        "attnlab.runs",
        "attnlab.report.command",
        "attnlab.dispatch",
        "attnlab.tune",
        "attnlab.dashboard",
        "hydra_plugins.attnlab_slots_launcher",
    ],
)
def test_the_composing_side_imports_no_torch(module: str) -> None:
    code = f"import sys, {module}; assert 'torch' not in sys.modules and 'lightning' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_worker_starts_without_what_its_run_may_not_need() -> None:
    code = "import sys, attnlab.train; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    late = {"wandb", "tensorboard", "pandas", "onnx", "jinja2.environment", "attnlab.bench", "attnlab.timing"}
    assert not late & set(done.stdout.split())
