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
from typing import Any, NamedTuple

PACKAGES = (
    *("attnlab", "numpy", "torch", "lightning", "hydra-core", "omegaconf"),
    *("torchmetrics", "sacrebleu", "tokenizers", "wandb"),
)
"""Packages whose versions are recorded."""

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's `mallopt`, from malloc.h."""


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
    """Return what a run is recorded with: versions, machine, and code.

    `git_commit` and `git_changes` describe the checkout that contains this package, and `project` the one of
    the current folder, which may define custom mechanisms. They are None for folders outside of git. `folder`
    is the current folder.
    """
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    module = Path(__file__)
    code = code_in(module.parent, tracks=module)
    project = code_in(Path.cwd())
    if project is not None and code is not None and project.folder == code.folder:
        project = None
    return {
        "python": platform.python_version(),
        "packages": versions,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpus": os.cpu_count(),
        "git_commit": None if code is None else code.commit,
        "git_changes": None if code is None else code.changes,
        "project": None if project is None else project._asdict(),
        "folder": str(Path.cwd()),
    }


class Code(NamedTuple):
    """State of a git checkout."""

    folder: str
    commit: str
    changes: str | None  # digest of the uncommitted changes; None if there are none


def code_in(folder: Path, *, tracks: Path | None = None) -> Code | None:
    """Return the commit of the checkout that contains a folder, and a digest of its uncommitted changes.

    Untracked files count if they are Python or YAML files that git does not ignore. None for a folder outside
    of git, and for a checkout that does not track the file `tracks`: an installed package inside another
    project is not part of that project.
    """
    try:
        if tracks is not None:
            _git(folder, "ls-files", "--error-unmatch", str(tracks))
        top = _git(folder, "rev-parse", "--show-toplevel").decode().strip()
        commit = _git(folder, "rev-parse", "HEAD").decode().strip()
        changes = _git(folder, "diff", "--binary", "HEAD", "--", ":/")
        patterns = (":/*.py", ":/*.yaml", ":/*.yml")
        listed = _git(Path(top), "ls-files", "-z", "--others", "--exclude-standard", "--", *patterns)
        untracked = sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)
        for name in untracked:
            changes += os.fsencode(name)
            with suppress(OSError):  # such as a symbolic link to a missing file
                changes += (Path(top) / name).read_bytes()
    except (OSError, subprocess.SubprocessError):
        return None
    return Code(top, commit, hashlib.sha256(changes).hexdigest() if changes else None)


def _git(folder: Path, *arguments: str) -> bytes:
    """Return the output of a git command; a busy machine may need seconds for it."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


def cpu_info(*names: str) -> list[str]:
    """Return the values that Linux lists for the CPU cores under these names; empty on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(names)]


def cpu_name() -> str:
    """Return the model name of the CPU."""
    names = cpu_info("model name")
    return names[0] if names else platform.processor() or platform.machine()


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
