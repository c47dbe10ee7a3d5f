"""Where a run's numbers and pictures go: always to `metrics.csv`, and to the loggers that were chosen."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from attnlab.runs import Run

log = logging.getLogger(__name__)

WandbMode = Literal["auto", "online", "offline"]
COLUMNS = ("epoch", "step", "metric", "value")


class MetricsFile(Logger):
    """`metrics.csv`, a number a line: epoch, step, metric, value. Lines are only ever added.

    A run that goes on from step n drops the lines after n first, so that the file reads as if the run had
    never stopped.
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
        fresh = not self.path.exists()
        epoch = int(metrics["epoch"]) if "epoch" in metrics else ""
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if fresh:
                writer.writerow(COLUMNS)
            for metric, value in metrics.items():
                if metric != "epoch":
                    writer.writerow((epoch, step, metric, repr(float(value))))

    @rank_zero_only
    def rewind(self, step: int) -> None:
        """Drop what was logged after `step`, and a last line that was cut short."""
        if not self.path.exists():
            return
        kept = [line for line in self.path.read_text().splitlines() if _is_up_to(line, step)]
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text("".join(f"{line}\n" for line in kept))
        temporary.replace(self.path)


def read_metrics(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Each metric's (step, value), in the order logged."""
    series: dict[str, list[tuple[int, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            series.setdefault(row["metric"], []).append((int(row["step"]), float(row["value"])))
    return series


def wandb_logger(*, run: Run, config: DictConfig, project: str, mode: WandbMode) -> WandbLogger | None:
    """A Weights & Biases run of the same id as this run, or None if wandb fails.

    Args:
        run: gives the id and the folder.
        config: is shown there.
        project: the wandb project.
        mode: "online", "offline", or "auto": online for those who are logged in, else offline. Nobody is
            ever asked for an account.
    """
    try:
        import wandb

        if mode == "auto":
            mode = "online" if _is_logged_in() else "offline"
        settings = wandb.Settings(mode=mode, silent=True, init_timeout=60, console="off", disable_git=True)
        experiment = wandb.init(
            project=project,
            id=run.hash,
            name=run.directory.name,
            group=str(config.name),
            job_type=str(config.variant),
            dir=run.directory,
            resume="allow",
            config=OmegaConf.to_container(config, resolve=True),  # type: ignore[arg-type]
            settings=settings,
        )
        return WandbLogger(experiment=experiment)
    except Exception as error:
        # Training must go on whatever a dashboard does: its absence is said, and is no reason to stop.
        log.warning("going on without Weights & Biases: %s", error)
        return None


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


def finish_wandb(loggers: list[Logger], *, failed: bool) -> None:
    """Close a Weights & Biases run, as a failed one if the run failed."""
    if any(isinstance(logger, WandbLogger) for logger in loggers):
        import wandb

        try:
            wandb.finish(exit_code=int(failed))
        except Exception as error:
            log.warning("Weights & Biases could not be closed: %s", error)


def peak_memory() -> dict[str, int]:
    """The most memory this process has held, in bytes, on the host and on the GPU."""
    import resource

    peak = {"host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if torch.cuda.is_available():
        peak["gpu"] = torch.cuda.max_memory_allocated()
    return peak


def _is_up_to(line: str, step: int) -> bool:
    parts = line.split(",")
    if line == ",".join(COLUMNS):
        return True
    return len(parts) == len(COLUMNS) and parts[1].isdigit() and int(parts[1]) <= step


def _is_logged_in() -> bool:
    """Whether a key lies ready, found without asking anybody for one."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import netrc

    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
