"""Loggers: metrics.csv, which every run writes, and Weights & Biases."""

import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from attnlab.files.metrics_file import append_metrics, cut_incomplete_rows, read_rows
from attnlab.files.run_directory import Run
from attnlab.files.run_identity import identity
from attnlab.metrics.registry import metric
from attnlab.settings import Positive

log = logging.getLogger(__name__)

WandbMode = Literal["auto", "online", "offline"]

Watch = Literal["gradients", "parameters", "all"]


class MetricsFile(Logger):
    """Writes `metrics.csv`; see `attnlab.files.metrics_file`.

    A resumed run first truncates the file to its length at the time of the checkpoint. The file then equals
    that of an uninterrupted run to the last digit, except for `throughput/…`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.step = 0

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: config.yaml contains the settings."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        epoch = int(metrics["epoch"]) if "epoch" in metrics else None
        values = {metric: value for metric, value in metrics.items() if metric != "epoch"}
        self.step = self.step if step is None else step  # Lightning allows calls without a step
        append_metrics(self.path, values, epoch=epoch, step=self.step)

    def flush(self) -> int:
        """Flush the file to disk and return its length in bytes."""
        if not self.path.exists():
            return 0
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    @rank_zero_only
    def truncate(self, length: int) -> None:
        """Truncate the file to `length` bytes, the end of a row; if it was cut before, to a complete row."""
        missing = length - cut_incomplete_rows(self.path, length)
        if missing > 0:
            log.warning(
                "%s was cut: %d bytes from before the checkpoint are missing, so curves have a gap; "
                "force=true trains again",
                self.path,
                missing,
            )


class TolerantWandbLogger(WandbLogger):
    """Weights & Biases logger whose errors do not stop the training; only the first one is a warning.

    The summary has the best value of each validation metric as `best/val/loss`, beside the last one,
    `val/loss`.
    """

    def __init__(self, experiment: Any, *, watched: Watch | None, log_model: bool) -> None:
        super().__init__(experiment=experiment, log_model=log_model)
        self.watched = watched
        self.failed = False
        self.best: dict[str, float] = {}

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Send numbers, pictures and tables."""
        try:
            super().log_metrics(metrics, step)
            self._update_best(metrics)
        except Exception as error:
            level = logging.DEBUG if self.failed else logging.WARNING
            log.log(level, "Weights & Biases: %s could not be sent: %s", ", ".join(metrics), error)
            self.failed = True

    def _update_best(self, metrics: Mapping[str, Any]) -> None:
        before = dict(self.best)
        for name, value in metrics.items():
            direction = metric(name).direction if name.startswith("val/") else None
            if direction is not None and not math.isnan(value):
                choose = max if direction == "higher" else min
                self.best[f"best/{name}"] = choose(value, self.best.get(f"best/{name}", value))
        if self.best != before:
            self.experiment.summary.update(self.best)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Upload checkpoints, if that is set."""
        try:
            super().finalize(status)
        except Exception as error:
            log.warning("Weights & Biases: the end of the run could not be sent: %s", error)

    @rank_zero_only
    def replay(self, path: Path) -> None:
        """Log all rows of metrics.csv again: a run that was killed has lost the last ones."""
        sent = self.experiment.summary.get("trainer/global_step", -1) if self.experiment.resumed else -1
        for epoch, step, metrics in read_rows(path):
            if step > sent:
                self.log_metrics(metrics if epoch is None else {**metrics, "epoch": epoch}, step)
            else:
                self._update_best(metrics)

    @rank_zero_only
    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Watch the gradients or parameters of the network, if that is set; called by Lightning."""
        if self.watched is not None:
            self.watch(model.network, self.watched, model.trainer.log_every_n_steps, log_graph=False)


def wandb_logger(
    *,
    run: Run,
    project: str = "attnlab",
    entity: str | None = None,
    group: str | None = None,
    job_type: str | None = None,
    notes: str | None = None,
    mode: WandbMode = "auto",
    tags: Sequence[str] = (),
    timeout: Positive = 60,
    save_code: bool = False,
    log_model: bool = False,
    watch: Watch | None = None,
) -> WandbLogger | None:
    """Start a Weights & Biases run, or return None if that fails.

    Args:
        run: run directory; its hash is the id of the Weights & Biases run.
        project: Weights & Biases project.
        entity: user or team that owns the project; None for the default one of the account.
        group: group of the run.
        job_type: job type of the run.
        notes: description of the run.
        mode: "online", "offline", or "auto": as WANDB_MODE or WANDB_DISABLED says, else online if logged in,
            else offline. The user is never prompted. Online falls back to offline if the server cannot be
            reached.
        tags: tags of the run.
        timeout: seconds to wait for the run to start, and to finish.
        save_code: log the Python and YAML files of the current folder as an artifact.
        log_model: log the best checkpoint as an artifact at the end of the training.
        watch: log histograms of "gradients", "parameters" or "all" of both.
    """
    if rank_zero_only.rank != 0:  # type: ignore[attr-defined]
        return None
    chosen = _mode_of_environment() if mode == "auto" else mode
    if chosen == "disabled":
        log.info("Weights & Biases is disabled by the environment")
        return None
    arguments = {"project": project, "entity": entity, "group": group, "job_type": job_type, "notes": notes}
    for attempt in ("online", "offline") if chosen == "online" else ("offline",):
        try:
            experiment = _init_wandb(run, attempt, timeout, tags=list(tags), **arguments)
            if save_code:
                _log_code(experiment, run.directory.parent.parent)
            return TolerantWandbLogger(experiment, watched=watch, log_model=log_model)
        except Exception as error:
            fallback = "without Weights & Biases" if attempt == "offline" else "offline"
            log.warning("Weights & Biases could not be started; continuing %s: %s", fallback, error)
    return None


def _log_code(experiment: Any, output: Path) -> None:
    """Log the code in the current folder, without hidden folders, installed packages and the output."""

    def is_code(path: str, root: str) -> bool:
        parts = Path(path).relative_to(root).parts
        is_own = not any(part.startswith(".") or part == "site-packages" for part in parts)
        return is_own and path.endswith((".py", ".yaml", ".yml")) and not Path(path).is_relative_to(output)

    experiment.log_code(".", include_fn=is_code)


def _init_wandb(run: Run, mode: str, timeout: float, **arguments: Any) -> Any:
    import wandb

    wandb.teardown()  # a failed attempt would still hold the id
    # Without a mode for the whole process, wandb sends its own telemetry in offline runs too
    wandb.setup(wandb.Settings(mode=mode))  # type: ignore[arg-type]
    experiment = wandb.init(
        **arguments,
        id=run.hash,
        name=run.directory.name,
        dir=run.directory,
        resume="allow",
        settings=wandb.Settings(
            mode=mode,  # type: ignore[arg-type]
            silent=True,
            console="off",
            git_commit=run.read_result().get("git_commit"),
            disable_git=True,
            init_timeout=timeout,
            finish_timeout=timeout,
        ),
    )
    # A resumed run restarts wandb's own step counter; the training step continues
    experiment.define_metric("trainer/global_step")
    experiment.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return experiment


def flatten(config: DictConfig) -> dict[str, Any]:
    """Return the settings that identify a run as a flat dictionary with names like `encoder/size`."""
    settings: Any = OmegaConf.to_container(config, resolve=True)
    names = {name: value for name, value in identity(settings).items() if not name.endswith("._partial_")}
    return {name.replace(".", "/"): value for name, value in names.items()}


def log_image(loggers: list[Logger], key: str, path: Path, *, step: int) -> None:
    """Send an image file to Weights & Biases and TensorBoard."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image(key=key, images=[str(path)])
        elif isinstance(logger, TensorBoardLogger):
            from matplotlib.image import imread

            logger.experiment.add_image(key, imread(path), step, dataformats="HWC")


def finish_wandb(exit_code: int) -> None:
    """Finish the current Weights & Biases run, if there is one, with this exit code."""
    if "wandb" not in sys.modules:
        return
    import wandb

    try:
        wandb.teardown(exit_code)  # unlike finish, it waits until all data is on disk
    except Exception as error:
        log.warning("Weights & Biases could not be finished: %s", error)


def _mode_of_environment() -> str:
    """Return "online", "offline" or "disabled" by wandb's variables, or by whether there is an API key."""
    if os.environ.get("WANDB_DISABLED", "").lower() in ("true", "1", "yes", "on"):
        return "disabled"
    mode = os.environ.get("WANDB_MODE", "").lower()
    mode = {"dryrun": "offline", "run": "online"}.get(mode, mode)  # older names
    if mode in ("online", "offline", "disabled"):
        return mode
    if os.environ.get("WANDB_API_KEY"):
        return "online"
    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").netloc
    file = os.environ.get("NETRC")
    try:
        is_logged_in = netrc(file and Path(file).expanduser()).authenticators(host) is not None
    except (OSError, NetrcParseError):
        return "offline"
    return "online" if is_logged_in else "offline"
