"""Loggers: metrics.csv, which every run writes, and Weights & Biases, TensorBoard and MLflow."""

import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig, OmegaConf

from attnlab.errors import needs
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

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

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
        append_metrics(self.path, values, epoch=epoch, step=step)

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
    """Weights & Biases logger whose errors do not stop the training.

    After an error, data of the same kind (numbers, or one picture or table) is no longer sent. Only the first
    error is a warning. The summary has the best value of each validation metric as `best/val/loss`, beside
    the last one, `val/loss`.

    Args:
        experiment: the run of `wandb.init`.
        run: run directory.
        watched: value of `watch`, see `wandb_logger`.
        log_model: see `wandb_logger`.
    """

    def __init__(self, experiment: Any, *, run: Run, watched: Watch | None, log_model: bool) -> None:
        super().__init__(experiment=experiment)
        self.run, self.watched, self.logs_model = run, watched, log_model
        self.failed: set[str] = set()
        self.best: dict[str, float] = {}

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Send numbers, pictures and tables."""
        # Lightning adds the epoch, an integer
        numbers = all(isinstance(value, int | float) for value in metrics.values())
        kind = "numbers" if numbers else ", ".join(metrics)
        if kind in self.failed:
            return
        try:
            super().log_metrics(metrics, step)
            if numbers:
                self._update_best(metrics)
        except Exception as error:
            level = logging.DEBUG if self.failed else logging.WARNING
            log.log(level, "Weights & Biases: %s could not be sent and will be skipped: %s", kind, error)
            self.failed.add(kind)

    def _update_best(self, metrics: Mapping[str, float]) -> None:
        before = dict(self.best)
        for name, value in metrics.items():
            direction = metric(name).direction if name.startswith("val/") else None
            if direction is not None and not math.isnan(value):
                choose = max if direction == "higher" else min
                self.best[f"best/{name}"] = choose(value, self.best.get(f"best/{name}", value))
        if self.best != before:
            self.experiment.summary.update(self.best)

    @rank_zero_only
    def replay(self) -> None:
        """Log all rows of metrics.csv again: a run that was killed has lost the last ones.

        The newest offline file then contains the whole curve. Online, rows that the server already has are
        skipped.
        """
        sent = self.experiment.summary.get("trainer/global_step", -1) if self.experiment.resumed else -1
        for epoch, step, metrics in read_rows(self.run.metrics):
            if step > sent:
                self.log_metrics(metrics if epoch is None else {**metrics, "epoch": epoch}, step)

    @rank_zero_only
    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Watch the gradients or parameters of the network, if that is set; called by Lightning."""
        if self.watched is not None:
            self.watch(model.network, self.watched, model.trainer.log_every_n_steps, log_graph=False)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Log the best checkpoint of a finished training as an artifact, if that is set."""
        if status == "success" and self.logs_model and self.run.best.is_file():
            import wandb

            artifact = wandb.Artifact(f"model-{self.run.hash}", type="model", metadata=self.best)
            artifact.add_file(str(self.run.best), "best.ckpt")
            self.experiment.log_artifact(artifact, aliases=["best"])
            self.logs_model = False


def wandb_logger(
    *,
    run: Run,
    config: DictConfig,
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

    The git commit of the code is recorded.

    Args:
        run: run directory; its hash is the id of the Weights & Biases run.
        config: logged as the run's settings.
        project: Weights & Biases project.
        entity: user or team that owns the project; None for the default one of the account.
        group: group of the run; None for `name`.
        job_type: job type of the run; None for `variant`.
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
    for attempt in ("online", "offline") if chosen == "online" else ("offline",):
        try:
            experiment = _init_wandb(
                run,
                config,
                attempt,
                timeout,
                project=project,
                entity=entity,
                group=group or str(config.name),
                job_type=job_type or str(config.variant),
                notes=notes,
                tags=list(tags),
            )
            if save_code:
                _log_code(experiment, run.directory.parent.parent)
            return TolerantWandbLogger(experiment, run=run, watched=watch, log_model=log_model)
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


def _init_wandb(run: Run, config: DictConfig, mode: str, timeout: float, **arguments: Any) -> Any:
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
        config=flatten(config),
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


def tensorboard_logger(*, run: Run, config: DictConfig) -> TensorBoardLogger:
    """Return a logger that writes TensorBoard files to the run directory."""
    return TensorBoardLogger(save_dir=run.directory, name="", version="tensorboard")


class TolerantMLFlowLogger(MLFlowLogger):
    """MLflow logger whose errors do not stop the training: after one, nothing more is sent."""

    failed = False

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._send(lambda: super(TolerantMLFlowLogger, self).log_metrics(metrics, step))

    @rank_zero_only
    def log_image(self, key: str, path: Path) -> None:
        self._send(lambda: self.experiment.log_artifact(self.run_id, str(path), key))

    @rank_zero_only
    def finalize(self, status: str = "success") -> None:
        self._send(lambda: super(TolerantMLFlowLogger, self).finalize(status))

    def _send(self, request: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            request()
        except Exception as error:
            log.warning("MLflow: data could not be sent; continuing without MLflow: %s", error)
            self.failed = True


def mlflow_logger(*, run: Run, config: DictConfig, tracking_uri: str | None = None) -> MLFlowLogger | None:
    """Start an MLflow run, or continue that of an interrupted run; return None if that fails.

    Args:
        run: run directory; its hash is the tag `attnlab_run`.
        config: logged as parameters; `name` is the experiment and `variant` a tag.
        tracking_uri: MLflow server or database; None for the variable MLFLOW_TRACKING_URI or, if it is not
            set, the SQLite file `mlflow.db` in the output folder.
    """
    if rank_zero_only.rank != 0:  # type: ignore[attr-defined]
        return None
    with needs("mlflow", "logger=mlflow needs MLflow"):
        from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    output = run.directory.parent.parent
    uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{output / 'mlflow.db'}"
    try:
        logger = TolerantMLFlowLogger(
            experiment_name=str(config.name),
            run_name=run.directory.name,
            tracking_uri=uri,
            tags={"attnlab_run": run.hash, "variant": str(config.variant), "seed": str(config.seed)},
            artifact_location=(output / "mlflow-artifacts").as_uri() if uri.startswith("sqlite:") else None,
            run_id=None if config.force else _mlflow_run(MlflowClient(uri), str(config.name), run.hash),
        )
        logger.log_hyperparams(flatten(config))
    except Exception as error:
        log.warning("MLflow could not be started; continuing without MLflow: %s", error)
        return None
    return logger


def _mlflow_run(client: Any, experiment: str, tag: str) -> str | None:
    """Return the id of the newest MLflow run with this tag `attnlab_run`, or None."""
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return None
    runs = client.search_runs([found.experiment_id], f"tags.attnlab_run = '{tag}'", max_results=1)
    return runs[0].info.run_id if runs else None


def log_image(loggers: list[Logger], key: str, path: Path, *, step: int) -> None:
    """Send an image file to the loggers that support images."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_image(key=key, images=[str(path)])
        elif isinstance(logger, TolerantMLFlowLogger):
            logger.log_image(key, path)
        elif isinstance(logger, TensorBoardLogger):
            from matplotlib.image import imread

            logger.experiment.add_image(key, imread(path), step, dataformats="HWC")


def log_table(
    loggers: list[Logger], key: str, columns: list[str], rows: list[list[Any]], *, step: int
) -> None:
    """Send a table to the loggers that support tables or text."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_text(key=key, columns=columns, data=rows)
        elif isinstance(logger, TensorBoardLogger):
            logger.experiment.add_text(key, markdown_table(columns, rows), step)


def markdown_table(columns: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown; line breaks and bars inside cells are escaped."""

    def line(cells: list[Any]) -> str:
        return "| " + " | ".join(" ".join(str(cell).split()).replace("|", "\\|") for cell in cells) + " |"

    return "\n".join([line(columns), line(["---"] * len(columns)), *map(line, rows)])


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
    return "online" if _is_logged_in() else "offline"


def _is_logged_in() -> bool:
    """Return whether an API key is available without asking the user, where wandb looks for it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import netrc
    from urllib.parse import urlsplit

    host = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").netloc
    file = os.environ.get("NETRC")
    try:
        return netrc.netrc(file and Path(file).expanduser()).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
