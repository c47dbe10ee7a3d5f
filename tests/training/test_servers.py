"""Loggers that send to running servers: MLflow's tracking server and TensorBoard."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import matplotlib.image
import pytest
from omegaconf import DictConfig

from attnlab.files.run_directory import prepare_run
from attnlab.training import components
from attnlab.training.loggers import log_image, log_table
from daemons import daemon, free_ports, wait_for

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning:mlflow"),
]
ATTEMPTS = ((4, "failed"), (9, "success"))
"""Steps and final states of a run that was interrupted, and then resumed."""


def read(url: str) -> bytes:
    """Return the answer of a server; empty if there is none yet."""
    with suppress(URLError, ConnectionError, TimeoutError), urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content
    return b""


def picture(folder: Path) -> Path:
    path = folder / "heat.png"
    matplotlib.image.imsave(path, [[0.0, 1.0], [1.0, 0.0]])
    return path


def test_mlflow_server_has_one_run_of_all_attempts(
    composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    pytest.importorskip("mlflow.server", reason="pip install mlflow")
    from mlflow.tracking import MlflowClient

    port = free_ports(1)[0]
    command = [
        *(sys.executable, "-m", "mlflow", "server", f"--port={port}", "--workers=1"),
        *(f"--backend-store-uri=sqlite:///{tmp_path}/server.db", f"--artifacts-destination={tmp_path}/files"),
    ]
    server = f"http://127.0.0.1:{port}"
    with daemon(command, tmp_path, {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}):
        wait_for(lambda: read(f"{server}/health"))
        config = composed("logger=mlflow", f"logger.mlflow.tracking_uri={server}")
        run = prepare_run(config)
        identities = set()
        for step, status in ATTEMPTS:
            (logger,) = components.build_loggers(config, run)
            logger.log_metrics({"val/loss": 1 / step, "epoch": 0}, step=step)
            log_image([logger], "attention/1", picture(tmp_path), step=step)
            logger.finalize(status)
            identities.add(logger.version)
        client = MlflowClient(server)
        (recorded,) = client.search_runs([client.get_experiment_by_name("reverse").experiment_id])
        assert identities == {recorded.info.run_id}
        assert recorded.info.status == "FINISHED"
        assert recorded.info.run_name == run.directory.name
        points = client.get_metric_history(recorded.info.run_id, "val/loss")
        assert [(point.step, point.value) for point in points] == [(4, 1 / 4), (9, 1 / 9)]
        copy = client.download_artifacts(recorded.info.run_id, "attention/1/heat.png", str(tmp_path))
        assert Path(copy).read_bytes() == picture(tmp_path).read_bytes()
    assert list((tmp_path / "files").rglob("heat.png"))  # the server, not the run, wrote it
    assert not (tmp_path / "outputs" / "mlflow.db").exists()


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="pip install 'attnlab[tensorboard]'")
def test_tensorboard_shows_one_run_of_all_attempts(
    composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    config = composed("logger=tensorboard")
    run = prepare_run(config)
    for step, status in ATTEMPTS:
        (logger,) = components.build_loggers(config, run)
        logger.log_metrics({"val/loss": 1 / step}, step=step)
        log_image([logger], "attention/1", picture(tmp_path), step=step)
        log_table([logger], "predictions", ["source"], [["3 4"]], step=step)
        logger.finalize(status)
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "tensorboard.main", f"--logdir={tmp_path}/outputs", f"--port={port}"]
    data = f"http://127.0.0.1:{port}/data/plugin"
    with daemon(command, tmp_path, {}):
        wait_for(lambda: json.loads(read(f"{data}/scalars/tags") or "{}"))
        (name,) = json.loads(read(f"{data}/scalars/tags"))
        assert name == f"reverse/{run.directory.name}/tensorboard"
        points = json.loads(read(f"{data}/scalars/scalars?run={name}&tag=val/loss"))
        assert [(step, round(value, 6)) for _, step, value in points] == [(4, 0.25), (9, 0.111111)]
        assert "attention/1" in json.loads(read(f"{data}/images/tags"))[name]
        assert read(f"{data}/text/tags")
