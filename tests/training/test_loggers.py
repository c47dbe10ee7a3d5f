"""Loggers: metrics.csv, TensorBoard and MLflow."""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from omegaconf import DictConfig
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from attnlab.config.compose import compose_run
from attnlab.errors import UserError
from attnlab.files.run_directory import prepare_run
from attnlab.training import components
from attnlab.training.loggers import MetricsFile, flatten, log_image


def test_truncated_file_equals_the_file_at_the_checkpoint_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    metrics = MetricsFile(path)
    assert metrics.flush() == 0
    metrics.log_metrics({"train/loss": 0.1, "epoch": 0}, step=4)
    length = metrics.flush()
    before = path.read_bytes()
    assert length == len(before)
    metrics.log_metrics({"val/loss": 1 / 3, "epoch": 0}, step=4)  # the same step, after the checkpoint
    after = path.read_bytes()

    for cut in (len(after), len(after) - 9, length):  # complete, in the middle of a row, at the checkpoint
        path.write_bytes(after[:cut])
        MetricsFile(path).truncate(length)
        assert path.read_bytes() == before
    metrics.log_metrics({"val/loss": 1 / 3, "epoch": 0}, step=4)
    assert path.read_bytes() == after


def test_logged_settings_are_those_that_identify_a_run() -> None:
    logged = flatten(compose_run(["encoder.size=7", "checkpoint.every_minutes=3"]))
    assert logged["encoder/size"] == 7
    assert not {"checkpoint/every_minutes", "data/cache", "paths/output"} & {*logged}
    assert not any(name.endswith("_partial_") for name in logged)


def test_tensorboard_receives_settings_and_pictures(
    composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    picture = tmp_path / "picture.png"
    matplotlib.image.imsave(picture, np.zeros((3, 5, 3)))
    config = composed("logger=tensorboard")
    run = prepare_run(config)
    for step in (4, 7):  # interrupted, and resumed
        (logger,) = components.build_loggers(config, run)
        logger.log_metrics({"val/loss": 1 / step}, step=step)
        log_image([logger], "attention/1", picture, step=step)
        logger.finalize("success")
    events = EventAccumulator(str(run.directory / "tensorboard")).Reload()
    images = events.Images("attention/1")
    assert [(image.step, image.width, image.height) for image in images] == [(4, 5, 3), (7, 5, 3)]
    assert [point.step for point in events.Scalars("val/loss")] == [4, 7]
    assert "size" in (run.directory / "tensorboard" / "hparams.yaml").read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning:mlflow")
def test_mlflow_run_has_the_curves_and_the_settings(
    composed: Callable[..., DictConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = composed("logger=mlflow", "seed=3")
    (logger,) = components.build_loggers(config, prepare_run(config))
    logger.log_metrics({"val/loss": 0.25, "epoch": 0}, step=4)
    logger.finalize("success")
    (recorded,) = logger.experiment.search_runs([logger.experiment_id])
    assert recorded.info.run_name == "additive-seed3"
    assert recorded.info.status == "FINISHED"
    assert recorded.data.params["encoder/size"] == str(config.encoder.size)
    assert recorded.data.metrics["val/loss"] == 0.25
    assert (tmp_path / "outputs" / "mlflow.db").is_file()


def test_missing_mlflow_is_one_line(
    composed: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    config = composed("logger=mlflow")
    with pytest.raises(UserError, match=r"MLFlowLogger: .*mlflow"):
        components.build_loggers(config, prepare_run(config))
