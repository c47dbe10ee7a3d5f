"""What a run directory holds, which run it is, and how it stands.

::

    outputs/<name>/<variant>-seed<n>-<hash>/
        config.yaml        the resolved configuration, all that a run follows from
        result.json        how the run stands, and its numbers
        metrics.csv        every number logged: epoch, step, metric, value
        train.log          what was said
        checkpoints/       best.ckpt, last.ckpt
        predictions/       what was decoded, a line an example
        figures/           heat maps and curves
        wandb/             Weights & Biases, offline until synced

Imports no torch: the process that composes configurations stays light.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from attnlab.errors import UserError

Status = Literal["running", "finished", "failed", "interrupted"]

NOT_IDENTITY = ("force", "paths", "logger")
"""Settings that say where things go and who is told, not what is computed."""

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
    def predictions(self) -> Path:
        """Folder of decoded splits."""
        return self.directory / "predictions"

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

    def write_result(self, status: Status, **values: Any) -> None:
        """Bring result.json up to date: new values over old, in one atomic step."""
        kept = {key: value for key, value in self.read_result().items() if key != "error"}
        write_atomically(self.result, json.dumps({**kept, "status": status, **values}, indent=2) + "\n")


def identify(config: DictConfig) -> str:
    """Eight hexadecimal digits that are the same for the same resolved configuration."""
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    identity = {key: value for key, value in plain.items() if key not in NOT_IDENTITY}
    identity["data"] = {key: value for key, value in plain["data"].items() if key != "cache"}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]


def prepare(config: DictConfig) -> Run:
    """The run of a configuration, with its directory made and its config.yaml written.

    `force=true` removes what an earlier run of the same configuration left.
    """
    name = f"{config.variant}-seed{config.seed}-{identify(config)}"
    run = Run(Path(config.paths.output).expanduser().absolute() / str(config.name) / name)
    if config.force and run.directory.exists():
        shutil.rmtree(run.directory)
    run.directory.mkdir(parents=True, exist_ok=True)
    plain = OmegaConf.to_container(config, resolve=True)
    write_atomically(run.config, OmegaConf.to_yaml(OmegaConf.create(plain)))
    return run


def locate(path: str) -> tuple[Run, Path]:
    """The run and the checkpoint that `RUN` means: a run directory's best checkpoint, or a checkpoint file.

    Raises:
        UserError: if there is none.
    """
    given = Path(path).expanduser()
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


def _git_commit() -> str | None:
    """The commit of the checkout this package lies in, or None where it is installed."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
