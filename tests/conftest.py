import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from omegaconf import DictConfig

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
CONTRACTS = {"attention", "decoders", "encoders", "fused", "nn", "decoding"}
"""Folders with many short tests, of which some are marked slow."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Configure the libraries, but not in the process of pytest-xdist that only distributes tests."""
    if session.config.pluginmanager.hasplugin("dsession"):
        return
    import torch
    import yaml
    from hypothesis import HealthCheck, settings

    torch.set_num_threads(1)  # the networks are tiny: threads would cost more than they give
    # Time limits would fail tests on a machine with other work.
    settings.register_profile(
        "attnlab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("attnlab")
    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc, assignment]  # Hydra reads some 20 files per composition


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import the tests without garbage collections, and leave what they import out of later ones."""
    from attnlab.files.imports import faster_imports

    with faster_imports():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each worker of pytest-xdist a share of the modules with slow tests first: many of them wait."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    modules = {item.path for item in items if item.get_closest_marker("slow")}
    slow = [item for item in items if item.path in modules and item.path.parent.name not in CONTRACTS]
    others = [item for item in items if item.path not in modules or item.path.parent.name in CONTRACTS]
    items[:] = [
        item
        for worker in range(workers)
        for part in (slow, others)
        for item in part[worker * len(part) // workers : (worker + 1) * len(part) // workers]
    ]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.default_generator.manual_seed(0)  # torch.manual_seed looks for all other devices too
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.fixture
def composed(tmp_path: Path) -> "Iterator[Callable[..., DictConfig]]":
    """Compose a configuration as `attnlab train` does; its runs and cache are in the test's folder."""
    from hydra.core.global_hydra import GlobalHydra

    from compositions import compose_values

    def compose_with(*overrides: str) -> "DictConfig":
        paths = (f"paths.output={tmp_path}/outputs", f"paths.cache={tmp_path}/cache")
        return compose_values(*overrides, *paths)

    yield compose_with
    GlobalHydra.instance().clear()


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run a command in this process and in an empty folder; it must end with exit code 2 and one line."""
    from attnlab.cli import main
    from forked import reset_hydra

    def run(*arguments: str) -> str:
        assert main.run([*arguments]) == 2
        output, errors = capsys.readouterr()
        assert output == ""
        assert list(tmp_path.iterdir()) == []
        (line,) = errors.splitlines()
        return line

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["attnlab"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    for variable in ("HYDRA_FULL_ERROR", "ATTNLAB_COMMAND"):
        monkeypatch.setenv(variable, "")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield run
    reset_hydra()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address of a server on this machine that serves it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
