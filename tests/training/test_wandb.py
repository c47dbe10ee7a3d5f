"""Training continues if Weights & Biases is missing, refuses, hangs or stops answering."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from omegaconf import DictConfig
from torch import nn

from attnlab.files.metrics_file import append_metrics, read_metrics
from attnlab.files.run_directory import Run, prepare_run
from attnlab.training import loggers
from attnlab.training.callbacks.checkpoints import BestCheckpoint
from attnlab.training.loggers import TolerantWandbLogger, finish_wandb, wandb_logger
from commands import TINY_REVERSE, attnlab
from wandb_files import read_offline, records

SETTINGS: dict[str, Any] = {"mode": "offline", "tags": (), "timeout": 30}
ANSWERS = yaml.safe_load(Path(__file__).with_name("wandb_answers.yaml").read_text())


@pytest.fixture
def run(composed: Callable[..., DictConfig]) -> Run:
    return prepare_run(composed())


def test_missing_package_is_a_warning(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # import wandb then raises ImportError
    assert wandb_logger(run=run, project="attnlab", **SETTINGS) is None
    assert "could not be started; continuing without Weights & Biases" in caplog.text


def test_refused_settings_are_a_warning(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert wandb_logger(run=run, project="a/b", **SETTINGS) is None
    assert "could not be started; continuing without Weights & Biases" in caplog.text
    assert "a/b" in caplog.text


def test_errors_after_the_run_was_closed_are_logged_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    logger = wandb_logger(run=run, project="attnlab", **SETTINGS)
    logger.log_metrics({"val/loss": 2.0}, step=1)
    finish_wandb(3)
    for step in (2, 3):
        logger.log_metrics({"val/loss": 1.0, "epoch": 0}, step=step)  # Lightning adds the epoch
        logger.log_metrics({"train/loss": 1.0, "epoch": 0}, step=step)
    logger.log_text("predictions", columns=["a"], data=[["b"]])
    warnings = [record for record in caplog.records if "could not be sent" in record.message]
    assert [record.levelname for record in warnings if record.levelno > logging.DEBUG] == ["WARNING"]
    assert "val/loss, epoch could not be sent" in warnings[0].message
    logged = read_offline(run.directory)
    assert [row["val/loss"] for row in logged["history"]] == [2.0]
    assert logged["exit_code"] == 3


def test_run_of_an_agent_is_the_run_of_its_trial(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = {"WANDB_SWEEP_ID": "sweep7", "WANDB_RUN_ID": "trial3", "WANDB_PROJECT": "search"}
    for name, value in trial.items():
        monkeypatch.setenv(name, value)
    assert wandb_logger(run=run, project="attnlab", **SETTINGS) is not None
    finish_wandb(0)
    (path,) = run.directory.glob("wandb/offline-run-*/run-*.wandb")
    (started,) = (record.run for record in records(path) if record.HasField("run"))
    assert (started.run_id, started.sweep_id, started.project) == ("trial3", "sweep7", "search")
    assert started.run_id != run.hash


def test_arguments_summary_and_artifacts(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run.checkpoints.mkdir()
    run.best.write_bytes(b"weights")
    run.write_result("running", git_commit="c0ffee")
    for path in ("mine.py", "data.txt", "venv/site-packages/theirs.py", ".hidden/x.py"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("code")
    arguments = {"entity": "me", "notes": "a note", "group": "g", "job_type": "j"}
    extras: Any = {"save_code": True, "log_model": True, "watch": "gradients"}
    logger = wandb_logger(run=run, **SETTINGS, **arguments, **extras)
    network = nn.Linear(2, 3)
    trainer = SimpleNamespace(log_every_n_steps=1)
    logger.log_graph(SimpleNamespace(network=network, trainer=trainer))
    for step, loss in enumerate([3.0, 1.0, 2.0]):
        network(torch.ones(5, 2)).sum().backward()
        logger.log_metrics({"val/loss": loss, "val/exact_match": loss / 10, "train/loss": loss}, step=step)
    best = BestCheckpoint(run.best, monitor="val/loss", mode="min")
    best.best_model_path = str(run.best)
    best.best_k_models = {str(run.best): torch.tensor(1.0)}
    logger.after_save_checkpoint(best)
    logger.finalize("success")
    finish_wandb(0)
    logged = read_offline(run.directory)
    assert logged.items() >= {**arguments, "commit": "c0ffee"}.items()
    assert logged["artifacts"] == {"code": ["mine.py"], "model": ["model.ckpt"]}
    lowest = {"best/val/loss": 1.0, "best/val/exact_match": 0.3}
    assert logged["summary"].items() >= {**lowest, "val/loss": 2.0, "val/exact_match": 0.2}.items()
    assert "best/train/loss" not in logged["summary"]
    assert [row["gradients/bias/values"] for row in logged["history"]] == [[3]] * 3


def test_best_values_that_were_sent_are_kept_by_a_resumed_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    for step, loss in ((9, 0.5), (19, 0.9)):
        append_metrics(path, {"val/loss": loss}, epoch=0, step=step)
    summary = {"trainer/global_step": 19}
    experiment: Any = SimpleNamespace(resumed=True, summary=summary)
    logger = TolerantWandbLogger(experiment, watched=None, log_model=False)
    logger.replay(path)
    logger._update_best({"val/loss": 0.8})
    assert summary["best/val/loss"] == 0.5


def test_rows_of_the_metrics_file_are_replayed(run: Run) -> None:
    for step in (4, 9):
        append_metrics(run.metrics, {"train/loss": 1 / step}, epoch=None, step=step)
        append_metrics(run.metrics, {"val/loss": 0.1 * step, "val/bleu": 3.0}, epoch=step // 5, step=step)
        append_metrics(run.metrics, {"val/loss": 0.7}, epoch=step // 5, step=step)
    logger = wandb_logger(run=run, **SETTINGS)
    logger.replay(run.metrics)
    finish_wandb(0)
    history = read_offline(run.directory)["history"]
    for name, series in read_metrics(run.metrics).items():
        assert [(row["trainer/global_step"], row[name]) for row in history if name in row] == series, name
    assert [row.get("epoch") for row in history] == [None, 0, 0, None, 1, 1]


@pytest.mark.parametrize(
    ("variables", "mode"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": "k"}, "online"),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "dryrun"}, "offline"),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "disabled"}, "disabled"),
        ({"WANDB_DISABLED": "true"}, "disabled"),
        ({"NETRC": "{file}"}, "offline"),
        ({"NETRC": "{file}", "WANDB_BASE_URL": "https://wandb.example.org:8443/"}, "online"),
    ],
    ids=str,
)
def test_mode_is_that_of_the_environment(
    variables: dict[str, str], mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "netrc"
    file.write_text("machine wandb.example.org:8443 login user password k\n")
    file.chmod(0o600)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DISABLED", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(file=file))
    assert loggers._mode_of_environment() == mode


class Hanging(BaseHTTPRequestHandler):
    """Sends the prepared answers, or what they return for the variables, and hangs at other requests."""

    answers: dict[str, Any]
    requests: list[str]

    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
        self.requests.append(request)
        (answer,) = [data for name, data in self.answers.items() if name in request] or [None]
        if answer is None:
            time.sleep(600)
        if callable(answer):
            answer = answer(json.loads(request)["variables"])
        body = json.dumps({"data": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(answers: dict[str, Any], requests: list[str] | None = None) -> Iterator[str]:
    """Run a server that sends these answers and hangs at other requests; yield its address."""
    handler = type(
        "Handler", (Hanging,), {"answers": answers, "requests": [] if requests is None else requests}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.socket.close()


@pytest.mark.slow
def test_server_that_never_answers(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving({}) as address:
        monkeypatch.setenv("WANDB_BASE_URL", address)
        monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
        started = time.monotonic()
        logger = wandb_logger(run=run, mode="online", timeout=6)
        logger.log_metrics({"test/exact_match": 0.5}, step=3)
        finish_wandb(0)
        assert time.monotonic() - started < 60  # the timeout and a little more
    assert "Weights & Biases could not be started; continuing offline" in caplog.text
    logged = read_offline(run.directory)
    assert logged["exit_code"] == 0
    assert [row["test/exact_match"] for row in logged["history"]] == [0.5]


@pytest.mark.slow
def test_server_that_stops_answering(tmp_path: Path) -> None:
    overrides = ["logger.wandb.mode=online", "logger.wandb.timeout=6", "trainer.max_epochs=1"]
    with serving(ANSWERS["start_of_run"]) as address:
        logged_in = {"WANDB_BASE_URL": address, "WANDB_API_KEY": "0123456789" * 4}
        attnlab("train", *TINY_REVERSE, "logger=wandb", *overrides, folder=tmp_path, **logged_in)
        ended = time.time()
    (directory,) = (tmp_path / "outputs" / "reverse").iterdir()
    run = Run(directory)
    assert run.read_result()["status"] == "finished"
    # Finishing takes the timeout of 6 seconds and a little more
    assert ended - run.result.stat().st_mtime < 60
    assert len(read_metrics(run.metrics)["val/loss"]) == 1
    assert "offline" not in run.log.read_text()
    logged = read_offline(run.directory, "run-*")  # unsent data, for `wandb sync`
    assert any("test/exact_match" in row for row in logged["history"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables", [{}, {"WANDB_MODE": "disabled", "WANDB_API_KEY": "0123456789" * 4}], ids=str
)
def test_offline_run_sends_nothing(tmp_path: Path, variables: dict[str, str]) -> None:
    requests: list[str] = []
    with serving({"": {}}, requests) as address:
        settings = ("logger=wandb", "callbacks.attention_figures.count=2", "trainer.max_epochs=1")
        environment = {"HOME": str(tmp_path), "WANDB_BASE_URL": address, **variables}
        attnlab("train", *TINY_REVERSE, *settings, folder=tmp_path, **environment)
    (run,) = (tmp_path / "outputs" / "reverse").iterdir()
    assert requests == []
    if variables.get("WANDB_MODE") == "disabled":
        assert not (run / "wandb").exists()
    else:
        assert read_offline(run)["exit_code"] == 0
