"""The MLflow logger with a SQLite file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from attnlab.errors import UserError
from attnlab.files.run_directory import prepare_run
from attnlab.training import components
from attnlab.training.loggers import TolerantMLFlowLogger, log_image

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning:mlflow")]


def test_mlflow_run_has_the_curves_the_settings_and_the_pictures_of_all_attempts(
    composed: Callable[..., DictConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = composed("logger=mlflow", "seed=3")
    run = prepare_run(config)
    picture = tmp_path / "heat.png"
    picture.write_bytes(b"picture")
    for step, status in ((4, "failed"), (9, "success")):  # interrupted, then resumed
        (logger,) = components.build_loggers(config, run)
        assert isinstance(logger, TolerantMLFlowLogger)
        logger.log_metrics({"val/loss": 1 / step, "epoch": 0}, step=step)
        log_image([logger], "attention/1", picture, step=step)
        logger.finalize(status)

    client = logger.experiment
    (recorded,) = client.search_runs([logger.experiment_id])
    assert recorded.info.run_name == run.directory.name
    assert recorded.info.status == "FINISHED"
    assert recorded.data.params["encoder/size"] == str(config.encoder.size)
    assert recorded.data.tags.items() >= {"variant": "additive", "seed": "3", "attnlab_run": run.hash}.items()
    points = client.get_metric_history(recorded.info.run_id, "val/loss")
    assert [(point.step, point.value) for point in points] == [(4, 1 / 4), (9, 1 / 9)]
    assert [file.path for file in client.list_artifacts(recorded.info.run_id, "attention/1")] == [
        "attention/1/heat.png"
    ]
    assert (tmp_path / "outputs" / "mlflow.db").is_file()

    config.force = True
    components.build_loggers(config, run)
    assert len(client.search_runs([logger.experiment_id])) == 2

    monkeypatch.setattr(client, "log_batch", lambda *_, **__: 1 / 0)
    for _ in range(2):
        logger.log_metrics({"val/loss": 1.0}, step=10)
    assert caplog.text.count("continuing without MLflow") == 1


def test_mlflow_store_that_cannot_be_opened_does_not_stop_the_training(
    composed: Callable[..., DictConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    uri = f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}"
    config = composed("logger=mlflow", f"logger.mlflow.tracking_uri={uri}")
    assert components.build_loggers(config, prepare_run(config)) == []
    assert "MLflow could not be started; continuing without MLflow" in caplog.text


def test_missing_mlflow_is_one_line(
    composed: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlflow.tracking", None)
    config = composed("logger=mlflow")
    with pytest.raises(UserError, match=r"pip install 'attnlab\[mlflow\]'"):
        components.build_loggers(config, prepare_run(config))
