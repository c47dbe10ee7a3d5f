"""Versions, machine and code that a run is recorded with."""

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    *("attnlab", "numpy", "torch", "lightning", "hydra-core", "omegaconf"),
    *("torchmetrics", "sacrebleu", "tokenizers", "wandb"),
)
"""Packages whose versions are recorded."""

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # Parameters of glibc's `mallopt`, from malloc.h


def tokenize_in_one_thread() -> None:
    """Turn off the threads of Hugging Face `tokenizers`, unless the user has set its variable.

    They do not survive a fork (data loading workers), and the library prints a warning in each one. A single
    thread tokenizes 50,000 sentences per second.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def keep_freed_memory() -> None:
    """Let this process keep freed memory for its next tensors, where the C library is glibc.

    It returns large freed blocks to the system, so that every step of a training or a search gets its memory
    page by page.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def environment() -> dict[str, Any]:
    """Return what a run is recorded with: versions, machine, current folder, and code.

    `git_commit` and `git_changes` describe the checkout of this package; they are None without one.
    """
    versions = {}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    commit, changes = git_state(Path(__file__))
    return {
        "python": platform.python_version(),
        "packages": versions,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "git_commit": commit,
        "git_changes": changes,
        "folder": str(Path.cwd()),
    }


def git_state(file: Path) -> tuple[str | None, str | None]:
    """Return the commit of the checkout that tracks a file, and a digest of its uncommitted changes or None.

    Untracked files count if they are Python or YAML files that git does not ignore. Both are None outside of
    git, and for an installed package inside another project, which does not track it.
    """
    try:
        _git(file.parent, "ls-files", "--error-unmatch", str(file))
        top = Path(_git(file.parent, "rev-parse", "--show-toplevel").decode().strip())
        commit = _git(top, "rev-parse", "HEAD").decode().strip()
        changes = _git(top, "diff", "--binary", "HEAD")
        untracked = ("ls-files", "-z", "--others", "--exclude-standard", "--", "*.py", "*.yaml", "*.yml")
        for name in sorted(filter(None, _git(top, *untracked).split(b"\0"))):
            changes += name
            with suppress(OSError):  # such as a symbolic link to a missing file
                changes += (top / os.fsdecode(name)).read_bytes()
    except (OSError, subprocess.SubprocessError):
        return None, None
    return commit, hashlib.sha256(changes).hexdigest() if changes else None


def _git(folder: Path, *arguments: str) -> bytes:
    """Return the output of a git command; a busy machine may need seconds for it."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


def cpu_name() -> str:
    """Return the model name of the CPU, and the vector instructions that PyTorch uses.

    CPUs of one name can have different vector instructions, with which sums are rounded differently.
    """
    import torch  # slow to import

    name = platform.processor() or platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def gpu_names() -> list[str]:
    """Return the names of the visible GPUs if this process used CUDA, else an empty list."""
    torch = sys.modules.get("torch")  # a process without torch has used no GPU
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def peak_memory() -> dict[str, int]:
    """Return the peak memory of this process in bytes: resident memory, and GPU memory if it used a GPU."""
    import resource

    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    torch = sys.modules.get("torch")  # a process without torch has used no GPU
    if torch is not None and torch.cuda.is_available():
        peak["gpu"] = torch.cuda.max_memory_allocated()
    return peak
