"""Run directories: their files, their configuration and their status.

::

    outputs/<name>/<variant>-seed<n>-<hash>/
        config.yaml        the resolved configuration, which determines the run
        result.json        status of the run, and its metrics
        metrics.csv        every logged number: epoch, step, metric, value
        train.log          the training log
        lock               held by the process that works on the run
        checkpoints/       best.ckpt, last.ckpt and the checkpoint before it, previous.ckpt
        predictions/       decoded splits, one line per example
        figures/           heat maps and curves
        wandb/             Weights & Biases, offline until synchronised

Imports no torch, so that composing configurations starts fast.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnlab.errors import UserError
from attnlab.files.lock import lock_directory
from attnlab.files.run_identity import identify
from attnlab.files.writing import TEMPORARY, no_space_left, write_atomically, write_json
from attnlab.files.yaml import read_yaml

Status = Literal["running", "finished", "failed", "interrupted"]


class Run:
    """Paths and records of a run directory. Runs of the same directory are equal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = directory / "config.yaml"
        self.result = directory / "result.json"
        self.metrics = directory / "metrics.csv"
        self.log = directory / "train.log"
        self.checkpoints = directory / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"  # of the best validation score
        self.last = self.checkpoints / "last.ckpt"  # training resumes from it
        self.previous = self.checkpoints / "previous.ckpt"
        self.predictions = directory / "predictions"
        self.attention = self.predictions / "attention.jsonl"
        self.figures = directory / "figures"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.directory == other.directory

    def __hash__(self) -> int:
        return hash(self.directory)

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"

    @property
    def hash(self) -> str:
        """The hash in the directory's name, also the run's id in Weights & Biases."""
        return self.directory.name.rsplit("-", 1)[-1]

    def read_config(self) -> DictConfig:
        """Read the configuration without resolving anything in it."""
        config: DictConfig = self._read_config(OmegaConf.load)
        return config

    def read_settings(self) -> dict[str, Any]:
        """Read the configuration as plain values, interpolations as text; takes a tenth of the time."""
        settings: dict[str, Any] = self._read_config(read_yaml)
        return settings

    def _read_config(self, load: Callable[[Path], Any]) -> Any:
        if not self.config.is_file():
            raise UserError(f"{self.directory} is not a run directory: it contains no config.yaml")
        try:
            config = load(self.config)
        except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{self.config} is not a valid configuration: {reason}") from error
        if not isinstance(config, Mapping):
            raise UserError(f"{self.config} is not a valid configuration: it is not a mapping")
        return config

    def read_result(self) -> dict[str, Any]:
        """Read result.json; {} if it does not exist or is damaged."""
        return self._parse_result()[0]

    @property
    def has_started(self) -> bool:
        """True once training has started, which records the data of the run in result.json."""
        return "data" in self.read_result()

    def result_problem(self) -> str | None:
        """Return why result.json is ignored by `read_result`; None if it is intact or does not exist."""
        return self._parse_result()[1]

    def _parse_result(self) -> tuple[dict[str, Any], str | None]:
        try:
            result = json.loads(self.result.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}, None
        except (OSError, ValueError) as error:
            return {}, f"cannot be read: {error}"
        if not isinstance(result, dict):
            return {}, "is not a JSON object"
        status, metrics = result.get("status"), result.get("metrics")
        if status not in get_args(Status):
            return {}, f"has the unknown status {status!r}"
        if status == "finished" and not _is_metrics(metrics):
            return {}, "has status 'finished' but no metrics"
        return result, None

    def write_result(self, status: Status, **values: Any) -> None:
        """Update result.json atomically: these values replace or extend the earlier ones."""
        earlier = {key: value for key, value in self.read_result().items() if key != "error"}
        result = {**earlier, "status": status, **values}
        try:
            write_json(self.result, result)
        except OSError as error:
            if not (no_space_left(error) and self.result.is_file()):
                raise
            # Overwriting needs no further space. If it is cut as well, it is treated as absent.
            with self.result.open("r+", encoding="utf-8") as file:
                file.write(json.dumps(result))
                file.truncate()

    def missing_outputs(self) -> list[str]:
        """Return the checkpoint and predictions of a finished run that were deleted, as relative paths."""
        names = self.read_result().get("metrics", {})
        scored = {name.rpartition("/")[0].removesuffix("/attention") for name in names}  # test/mscoco/bleu
        splits = sorted(split for split in scored if split.partition("/")[0] in ("val", "test"))
        paths = [self.best, *(self.predictions / predictions_file(split) for split in splits)]
        return [str(path.relative_to(self.directory)) for path in paths if not path.is_file()]

    def lock(self) -> AbstractContextManager[None]:
        """Lock the directory; raise `InUseError` if another process works on the run."""
        return lock_directory(self.directory)

    def remove_temporary_files(self) -> None:
        """Remove partially written files of a killed process."""
        for folder in (self.directory, self.checkpoints, self.predictions, self.figures):
            for path in folder.glob(TEMPORARY):
                path.unlink()

    def discard(self) -> None:
        """Remove the directory, and the folders of the study and of the output if that leaves them empty."""
        shutil.rmtree(self.directory)
        for folder in self.directory.parents[:2]:
            if any(folder.iterdir()):
                break
            folder.rmdir()

    def clear(self) -> None:
        """Remove all files of the run except the lock, starting with result.json."""
        self.result.unlink(missing_ok=True)
        for path in self.directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()


def predictions_file(split: str) -> str:
    """Return the name of the predictions file of a split: "test-mscoco.jsonl" for "test/mscoco"."""
    return f"{split.replace('/', '-')}.jsonl"


def _is_metrics(value: Any) -> bool:
    """Return whether a value of a JSON file is a non-empty mapping of names to numbers."""
    return isinstance(value, dict) and bool(value) and all(isinstance(v, int | float) for v in value.values())


def run_of(config: DictConfig) -> Run:
    """Return the run of a configuration, whether or not its directory exists."""
    folder = Path(config.paths.output).expanduser().absolute() / str(config.name)
    return Run(folder / f"{config.variant}-seed{config.seed}-{identify(config)}")


def prepare_run(config: DictConfig) -> Run:
    """Create the run directory of a configuration and write its config.yaml."""
    run = run_of(config)
    settings = OmegaConf.to_container(config, resolve=True)
    try:
        run.directory.mkdir(parents=True, exist_ok=True)
        with run.lock():
            if config.force:
                run.clear()
            is_finished = run.read_result().get("status") == "finished"
            if not (is_finished and run.config.is_file()):  # the settings that it was trained with stay
                write_atomically(run.config, OmegaConf.to_yaml(OmegaConf.create(settings)))
    except OSError as error:
        raise UserError(f"paths.output: {run.directory} cannot be written ({error.strerror})") from error
    problem = run.result_problem()
    if problem is not None:
        print(f"attnlab: {run.result} {problem}; it is ignored, and the run continues", file=sys.stderr)
    return run


def locate_run(path: str) -> tuple[Run, Path]:
    """Return the run and the checkpoint of a command's RUN argument. Symbolic links are followed.

    Args:
        path: a run directory, of which the best checkpoint is used, else the last, else the one before it; or
            a checkpoint file.
    """
    location = Path(path).expanduser() if path.startswith("~/") else Path(path)
    try:
        is_folder = location.is_dir()
    except OSError as error:
        raise UserError(f"{location} cannot be read ({error.strerror})") from None
    if is_folder:
        run = Run(location.resolve())
        if not run.config.is_file():
            raise UserError(f"{location} is not a run directory: it contains no config.yaml")
        for checkpoint in (run.best, run.last, run.previous):
            if checkpoint.is_file():
                return run, checkpoint
        raise UserError(f"{location} contains no checkpoint: train the run first (attnlab train …)")
    if not location.is_file():
        raise UserError(f"{location} does not exist: give a run directory or a checkpoint file")
    checkpoint = location.resolve()
    folder = checkpoint.parent
    return Run(folder.parent if folder.name == "checkpoints" else folder), checkpoint
