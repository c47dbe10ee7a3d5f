"""Every study, in both forms, is a grid of jobs that compose and can be built."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from attnlab.config.compose import CONF
from attnlab.sweeps.preflight import find_error

STUDIES = sorted(path.stem for path in (CONF / "study").glob("*.yaml"))


def jobs(study: str, *more: str) -> list[list[str]]:
    """The words of every job of a study, as Hydra's sweeper makes them."""
    words = [f"study={study}", *more]
    grid = composed(words)
    assert grid.hydra.mode.name == "MULTIRUN"
    swept = [f"{key}={value}" for key, value in grid.hydra.sweeper.params.items()]
    loader = GlobalHydra.instance().config_loader()
    overrides = OverridesParser.create(config_loader=loader).parse_overrides([*swept, *words])
    (batch,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    return batch


def composed(words: list[str]) -> DictConfig:
    config = compose("train", overrides=words, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    return config


def run_config(words: list[str]) -> DictConfig:
    """What a job's run directory would hold."""
    config = composed(words)
    own = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
    OmegaConf.resolve(own)
    return own


@pytest.mark.parametrize("study", STUDIES)
def test_the_short_form_of_a_study_is_short_and_has_a_name_of_its_own(study: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        batch = jobs(study, "quick=true")
        assert 2 <= len(batch) <= 8
        assert run_config(batch[-1]).name == f"{study}_quick"


def test_the_words_of_the_command_win_over_the_grid() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        batch = jobs("attention_variants", "quick=true", "seed=7", "trainer.max_epochs=1")
        assert [word for job in batch for word in job if word.startswith("seed=")] == ["seed=7"] * 3
        assert composed(batch[0]).trainer.max_epochs == 1


def test_attention_variants_has_every_mechanism() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        swept = {word.split("=")[1] for job in jobs("attention_variants") for word in job[:1]}
    assert swept == {path.stem for path in Path(CONF / "attention").glob("*.yaml")}


@pytest.mark.slow
@pytest.mark.parametrize("quick", ["true", "false"])
@pytest.mark.parametrize("study", STUDIES)
def test_every_job_of_a_study_can_be_built_under_a_name_of_its_own(study: str, quick: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        configs = [run_config(words) for words in jobs(study, f"quick={quick}", "seed=0")]
        assert [find_error(config) for config in configs] == [None] * len(configs)
        assert len({config.variant for config in configs}) == len(configs)
        assert {config.name for config in configs} == {study + ("_quick" if quick == "true" else "")}
