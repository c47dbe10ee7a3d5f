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
    "data": {"errors", "types"},
    "nn": {"types"},
    "decoding": {"data", "nn", "types"},
    "metrics": {"data", "errors", "types"},
    "plotting": set(),
    "training": {"data", "decoding", "errors", "metrics", "nn", "plotting", "runs", "types"},
    "config": {"data", "errors", "metrics", "nn", "runs", "training"},
    "sweeps": {"config", "data", "errors", "runs"},
    "analysis": {"errors", "metrics", "runs"},
    "report": {"analysis", "errors", "metrics", "plotting", "runs"},
    "benchmark": {"config", "data", "decoding", "errors", "nn", "training", "types"},
    "cli": {
        "analysis",
        "benchmark",
        "config",
        "data",
        "decoding",
        "errors",
        "metrics",
        "nn",
        "plotting",
        "report",
        "runs",
        "sweeps",
        "training",
        "types",
    },
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
        "attnlab.cli.main",
        "attnlab.config.compose",
        "attnlab.runs.directory",
        "attnlab.cli.report",
        "attnlab.sweeps.scheduler",
        "attnlab.sweeps.hyperparameter_search",
        "attnlab.report.workspace",
        "hydra_plugins.attnlab_slots_launcher",
    ],
)
def test_the_composing_side_imports_no_torch(module: str) -> None:
    code = f"import sys, {module}; assert 'torch' not in sys.modules and 'lightning' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_worker_starts_without_what_its_run_may_not_need() -> None:
    code = "import sys, attnlab.cli.recipe; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    late = {
        "wandb",
        "tensorboard",
        "pandas",
        "onnx",
        "jinja2.environment",
        "attnlab.cli.bench",
        "attnlab.benchmark.timing",
    }
    assert not late & set(done.stdout.split())
