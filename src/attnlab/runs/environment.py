"""Versions, machine and git commit that a run is recorded with."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "attnlab",
    "torch",
    "lightning",
    "hydra-core",
    "omegaconf",
    "torchmetrics",
    "sacrebleu",
    "tokenizers",
    "wandb",
)
"""Packages whose versions are recorded."""


def environment() -> dict[str, Any]:
    """Return the versions of Python and of `PACKAGES`, the platform, and the git commit or None."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "packages": versions,
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "git_commit": git_commit(),
    }


def git_commit() -> str | None:
    """Return the commit of the checkout that contains this package, or None if it is not in a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.strip() or None


def peak_memory() -> dict[str, int]:
    """Return the peak memory of this process in bytes: resident memory, and GPU memory if it used a GPU."""
    import resource

    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    torch = sys.modules.get("torch")  # a process without torch has used no GPU
    if torch is not None and torch.cuda.is_available():
        peak["gpu"] = torch.cuda.max_memory_allocated()
    return peak
