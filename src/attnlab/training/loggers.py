"""Where a run's numbers and pictures go: always to `metrics.csv`, and to the loggers that were chosen."""

from __future__ import annotations

import csv
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from attnlab.runs.directory import Run
from attnlab.runs.identity import NOT_IDENTITY
from attnlab.runs.metrics_file import COLUMNS

log = logging.getLogger(__name__)

WandbMode = Literal["auto", "online", "offline"]


class MetricsFile(Logger):
    """`metrics.csv`, a number a line: epoch, step, metric, value. Lines are only ever added.

    A run that goes on first cuts the file to the length it had when the checkpoint was saved, so that it
    reads as if the run had never stopped. All but `throughput/…` is the same then, to the last digit.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def name(self) -> str:
        """Lightning asks for one."""
        return "metrics"

    @property
    def version(self) -> str:
        """Lightning asks for one."""
        return ""

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a line for each metric."""
        epoch = int(metrics["epoch"]) if "epoch" in metrics else ""
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if file.tell() == 0:
                writer.writerow(COLUMNS)
            for metric, value in metrics.items():
                if metric != "epoch":
                    writer.writerow((epoch, step, metric, repr(float(value))))

    def flush(self) -> int:
        """See to it that all lines are on the disk; returns the file's length in bytes."""
        if not self.path.exists():
            return 0
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    @rank_zero_only
    def rewind(self, length: int) -> None:
        """Cut the file to `length` bytes."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size > length:
            os.truncate(self.path, length)
        elif size < length:
            log.warning("%s lacks the numbers of before the checkpoint: it was changed", self.path)


class ForgivingWandbLogger(WandbLogger):
    """Weights & Biases that cannot stop a training: of what fails once, no more is sent."""

    def __init__(self, experiment: Any) -> None:
        super().__init__(experiment=experiment)
        self.failed: set[str] = set()

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Send numbers; pictures and tables come this way too."""
        kind = (
            "numbers" if all(isinstance(value, float) for value in metrics.values()) else ", ".join(metrics)
        )
        if kind in self.failed:
            return
        try:
            super().log_metrics(metrics, step)
        except Exception as error:
            log.warning("going on without %s in Weights & Biases: %s", kind, error)
            self.failed.add(kind)


def wandb_logger(
    *, run: Run, config: DictConfig, project: str, mode: WandbMode, tags: Sequence[str], timeout: float
) -> WandbLogger | None:
    """A Weights & Biases run of the same id as this run, or None if wandb fails.

    Args:
        run: gives the id and the folder.
        config: is shown there; its name is the group, its variant the job type.
        project: the wandb project.
        mode: "online", "offline", or "auto": online for those who are logged in, else offline. Nobody is
            ever asked for an account. Online turns into offline if the server cannot be reached.
        tags: of the run.
        timeout: seconds to wait for it to begin, and later for it to end.
    """
    if rank_zero_only.rank != 0:  # type: ignore[attr-defined]
        return None
    if mode == "auto":
        mode = "online" if _is_logged_in() else "offline"
    modes = ("online", "offline") if mode == "online" else ("offline",)
    for attempt in modes:
        try:
            return ForgivingWandbLogger(experiment=_begin_wandb(run, config, project, attempt, tags, timeout))
        except Exception as error:
            how = "without Weights & Biases" if attempt == "offline" else "with Weights & Biases offline"
            log.warning("going on %s: %s", how, error)
    return None


def _begin_wandb(
    run: Run, config: DictConfig, project: str, mode: str, tags: Sequence[str], timeout: float
) -> Any:
    import wandb

    wandb.teardown()  # what an attempt before this one left would still hold the id
    experiment = wandb.init(
        project=project,
        id=run.hash,
        name=run.directory.name,
        group=str(config.name),
        job_type=str(config.variant),
        tags=list(tags),
        dir=run.directory,
        resume="allow",
        config=flatten(config),
        settings=wandb.Settings(
            mode=mode,  # type: ignore[arg-type]
            silent=True,
            console="off",
            disable_git=True,
            init_timeout=timeout,
            finish_timeout=timeout,
        ),
    )
    # A run that goes on starts counting its rows anew; steps of training go on where they were.
    experiment.define_metric("trainer/global_step")
    experiment.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return experiment


def flatten(config: DictConfig) -> dict[str, Any]:
    """The settings that a dashboard filters and groups by, as `encoder/size`: all but where things go."""

    def walk(node: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in node.items():
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{name}/")
            elif name != "_partial_":
                yield f"{prefix}{name}", value

    plain: Any = OmegaConf.to_container(config, resolve=True)
    return dict(walk({name: value for name, value in plain.items() if name not in NOT_IDENTITY}, ""))


def tensorboard_logger(*, run: Run, config: DictConfig) -> TensorBoardLogger:
    """TensorBoard files in the run directory."""
    return TensorBoardLogger(save_dir=run.directory, name="", version="tensorboard")


def log_image(loggers: list[Logger], key: str, path: Path) -> None:
    """Show a picture in the loggers that can show one."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image(key=key, images=[str(path)])


def log_table(loggers: list[Logger], key: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Show a table in the loggers that can show one."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_text(key=key, columns=columns, data=rows)


def finish_wandb(exit_code: int) -> None:
    """Close the Weights & Biases run, if one is open, as one that ended with this exit code."""
    if "wandb" not in sys.modules:
        return
    import wandb

    try:
        wandb.teardown(exit_code)  # unlike finish, it waits until all is on the disk
    except Exception as error:
        log.warning("Weights & Biases could not be closed: %s", error)


def peak_memory() -> dict[str, int]:
    """The most memory this process has held, in bytes, on the host and on the GPU."""
    import resource

    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if torch.cuda.is_available():
        peak["gpu"] = torch.cuda.max_memory_allocated()
    return peak


def _is_logged_in() -> bool:
    """Whether a key lies ready, found without asking anybody for one."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import netrc

    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
