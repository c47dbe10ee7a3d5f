import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, settings
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from attnlab.cli import main
from attnlab.config.compose import accept
from attnlab.config.hydra_versions import initialize_conf
from attnlab.config.options import CONF
from forked import reset_hydra

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs without it
torch.set_num_threads(1)  # the networks are tiny: threads would cost more than they give
# Time limits would fail tests on a machine with other work.
settings.register_profile(
    "attnlab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("attnlab")
CONTRACTS = {"attention", "decoders", "encoders", "fused", "nn", "decoding"}
"""Folders with many short tests, of which some are marked slow."""

yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc, assignment]  # Hydra reads some 20 files per composition


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
    torch.manual_seed(0)


@cache
def compose_options(*overrides: str) -> DictConfig:
    """Compose the configuration with these options of groups; do not change the result."""
    with initialize_conf():
        return compose("train", overrides=[*overrides], return_hydra_config=True)


def chooses_option(override: str) -> bool:
    """Return whether an override chooses an option of a group rather than giving a value."""
    key = override.partition("=")[0].lstrip("+~").partition("@")[0]
    return "@" in override.partition("=")[0] or (CONF / key).is_dir()


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Callable[..., DictConfig]]:
    """Compose a configuration as `attnlab train` does; its runs and cache are in the test's folder.

    Compositions of the same options are shared; values are assigned as Hydra does.
    """

    def compose_with(*overrides: str) -> DictConfig:
        overrides = (*overrides, f"paths.output={tmp_path}/outputs", f"paths.cache={tmp_path}/cache")
        config = compose_options(*filter(chooses_option, overrides)).copy()
        values = accept([override for override in overrides if not chooses_option(override)])
        for override in OverridesParser.create().parse_overrides(overrides=values):
            assert not override.is_delete()
            added = override.is_add() or override.is_force_add()
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True, force_add=added)
        HydraConfig.instance().set_config(config)
        composed = config.copy()
        with read_write(composed), open_dict(composed):
            del composed["hydra"]
        return composed

    yield compose_with
    GlobalHydra.instance().clear()


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Run a command in this process and in an empty folder; it must end with exit code 2 and one line."""

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
