from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hypothesis import settings
from omegaconf import DictConfig, open_dict, read_write

from attnlab.config.options import CONF

torch.set_num_threads(1)  # the networks are tiny: threads would cost more than they give
settings.register_profile("attnlab", deadline=None, derandomize=True)
settings.load_profile("attnlab")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Callable[..., DictConfig]]:
    """Compose a configuration as `attnlab train` does; its runs and cache are in the test's folder."""
    with initialize_config_dir(str(CONF), version_base="1.3"):

        def compose_with(*overrides: str) -> DictConfig:
            overrides = [*overrides, f"paths.output={tmp_path}/outputs", f"paths.cache={tmp_path}/cache"]
            config = compose("train", overrides=overrides, return_hydra_config=True)
            HydraConfig.instance().set_config(config)
            composed = config.copy()
            with read_write(composed), open_dict(composed):
                del composed["hydra"]
            return composed

        yield compose_with
    GlobalHydra.instance().clear()
