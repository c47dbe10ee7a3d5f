"""What a run directory holds, which run it is, and how it stands.

::

    outputs/<name>/<variant>-seed<n>-<hash>/
        config.yaml        the resolved configuration, all that a run follows from
        result.json        how the run stands, and its numbers
        metrics.csv        every number logged: epoch, step, metric, value
        train.log          what was said
        lock               held by the process that runs it
        checkpoints/       best.ckpt, last.ckpt and the one before, previous.ckpt
        predictions/       what was decoded, a line an example
        figures/           heat maps and curves
        wandb/             Weights & Biases, offline until synced

Imports no torch: the process that composes configurations stays light.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from attnlab.errors import UserError

Status = Literal["running", "finished", "failed", "interrupted"]

NOT_IDENTITY = ("force", "quick", "paths", "logger", "data.cache", "checkpoint.every_minutes")
"""Settings that say where things go, who is told, or what other settings are, not what is computed."""

PATIENCE = 60.0
"""How many seconds a run that is stopping is waited for."""

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


@dataclass(frozen=True)
class Run:
    """A run directory."""

    directory: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.directory / "config.yaml"

    @property
    def result(self) -> Path:
        """How the run stands."""
        return self.directory / "result.json"

    @property
    def metrics(self) -> Path:
        """Every number logged."""
        return self.directory / "metrics.csv"

    @property
    def log(self) -> Path:
        """What was said."""
        return self.directory / "train.log"

    @property
    def checkpoints(self) -> Path:
        """Folder of best.ckpt and last.ckpt."""
        return self.directory / "checkpoints"

    @property
    def best(self) -> Path:
        """The checkpoint with the best validation score."""
        return self.checkpoints / "best.ckpt"

    @property
    def last(self) -> Path:
        """The checkpoint to go on from."""
        return self.checkpoints / "last.ckpt"

    @property
    def previous(self) -> Path:
        """The one before it."""
        return self.checkpoints / "previous.ckpt"

    @property
    def predictions(self) -> Path:
        """Folder of decoded splits."""
        return self.directory / "predictions"

    @property
    def attention(self) -> Path:
        """The weights of the first sentences; see `attnlab.runs.attention_records`."""
        return self.predictions / "attention.jsonl"

    @property
    def figures(self) -> Path:
        """Folder of pictures."""
        return self.directory / "figures"

    @property
    def hash(self) -> str:
        """The hash in the directory's name, also the run's id in Weights & Biases."""
        return self.directory.name.rsplit("-", 1)[-1]

    def read_config(self) -> DictConfig:
        """The configuration this run follows from.

        Raises:
            UserError: if the directory is not a run.
        """
        if not self.config.is_file():
            raise UserError(f"{self.directory} is not a run directory: it holds no config.yaml")
        config = OmegaConf.load(self.config)
        assert isinstance(config, DictConfig)
        return config

    def read_result(self) -> dict[str, Any]:
        """What result.json holds; {} where there is none yet."""
        if not self.result.is_file():
            return {}
        result: dict[str, Any] = json.loads(self.result.read_text())
        return result

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the directory against all other processes; the kernel lets go when this one ends, however.

        Raises:
            UserError: if another process holds it. One that is stopping, because what started it is gone, is
                waited for.
        """
        # Not flock: data loaders, which are forks, would go on holding it when this process is killed.
        deadline = time.monotonic() + PATIENCE
        with (self.directory / "lock").open("a+", encoding="utf-8") as file:
            while True:
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in (errno.EACCES, errno.EAGAIN):
                        break  # a file system that knows no locks
                    file.seek(0)
                    holder = file.read().split()
                    if not _is_stopping(*holder) or time.monotonic() > deadline:
                        raise UserError(_in_use(self.directory, *holder)) from None
                    time.sleep(0.1)
            file.truncate(0)
            file.write(f"{socket.gethostname()} {os.getpid()} {os.getppid()}\n")
            file.flush()
            yield

    def tidy(self) -> None:
        """Remove what a killed process left half-written."""
        for folder in (self.directory, self.checkpoints, self.predictions, self.figures):
            for path in folder.glob(".*.tmp"):
                path.unlink()

    def write_result(self, status: Status, **values: Any) -> None:
        """Bring result.json up to date: new values over old, in one atomic step."""
        kept = {key: value for key, value in self.read_result().items() if key != "error"}
        write_atomically(self.result, json.dumps({**kept, "status": status, **values}, indent=2) + "\n")


def identify(config: DictConfig) -> str:
    """Eight hexadecimal digits that are the same for the same resolved configuration."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return hashlib.sha256(json.dumps(identity(plain), sort_keys=True).encode()).hexdigest()[:8]


def identity(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Every setting a run follows from, by its dotted name: all but `NOT_IDENTITY`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if name not in NOT_IDENTITY:
            flat |= identity(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def run_of(config: DictConfig) -> Run:
    """The run of a configuration, whether or not it was ever started."""
    name = f"{config.variant}-seed{config.seed}-{identify(config)}"
    return Run(Path(config.paths.output).expanduser().absolute() / str(config.name) / name)


def prepare(config: DictConfig) -> Run:
    """The run of a configuration, with its directory made and its config.yaml written.

    `force=true` removes what an earlier run of the same configuration left.

    Raises:
        UserError: if a process is at work there.
    """
    run = run_of(config)
    run.directory.mkdir(parents=True, exist_ok=True)
    plain = OmegaConf.to_container(config, resolve=True)
    with run.lock():
        if config.force:
            _clear(run)
        write_atomically(run.config, OmegaConf.to_yaml(OmegaConf.create(plain)))
    return run


def locate(path: str) -> tuple[Run, Path]:
    """The run and the checkpoint that `RUN` means: a run directory's best checkpoint, or a checkpoint file.

    Raises:
        UserError: if there is none.
    """
    given = Path(path)
    if path.startswith("~/"):
        given = given.expanduser()
    if given.is_dir():
        run = Run(given.absolute())
        run.read_config()
        for checkpoint in (run.best, run.last):
            if checkpoint.is_file():
                return run, checkpoint
        raise UserError(f"{given} holds no checkpoint yet: train it first (attnlab train …)")
    if not given.is_file():
        raise UserError(f"{given} does not exist: give a run directory or a checkpoint file")
    folder = given.absolute().parent
    return Run(folder.parent if folder.name == "checkpoints" else folder), given


def environment() -> dict[str, Any]:
    """Versions of Python and of the packages, the machine, and the git commit if there is one."""
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
        "git_commit": _git_commit(),
    }


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _clear(run: Run) -> None:
    """Remove all that a run left, but for the lock; first what says that it is finished."""
    run.result.unlink(missing_ok=True)
    for path in run.directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _in_use(directory: Path, host: str = "another machine", pid: str = "?", *_: str) -> str:
    return f"{directory} is in use by process {pid} on {host}: wait for it, or stop it"


def _is_stopping(host: str = "", pid: str = "", starter: str = "") -> bool:
    """Whether the process that holds a lock lost what started it, at which Linux tells a worker to stop."""
    if host != socket.gethostname() or not sys.platform.startswith("linux"):
        return False
    try:
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return True  # gone since
    return parent != starter


def _git_commit() -> str | None:
    """The commit of the checkout this package lies in, or None where it is installed."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
