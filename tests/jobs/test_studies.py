"""Every study, full and quick, is a grid of jobs that compose and build."""

from pathlib import Path

import pytest
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from attnlab.config.compose import accept, resolve
from attnlab.config.hydra_versions import initialize_conf
from attnlab.config.options import CONF
from attnlab.errors import UsageError
from attnlab.jobs.grid import expand, list_jobs, split_space
from attnlab.jobs.preflight import find_error
from compositions import first_value

STUDIES = sorted(path.stem for path in (CONF / "study").glob("*.yaml"))


def jobs(study: str, *more: str) -> list[list[str]]:
    """Return the overrides of every job of a study, as Hydra's sweeper creates them.

    Those of a search are its variants, with the smallest or first value of every searched setting.
    """
    overrides = [f"study={study}", *more]
    grid = composed(overrides)
    assert grid.hydra.mode.name == "MULTIRUN"
    sweeper = grid.hydra.sweeper
    if "compare" in sweeper:
        space, overrides = split_space(sweeper.params, overrides, sweeper.compare)
        overrides += [f"{key}={first_value(sweep)}" for key, sweep in space.items()]
        return list_jobs({}, sweeper.zip, sweeper.overrides, overrides)
    return list_jobs(sweeper.params, sweeper.zip, sweeper.overrides, overrides)


def covering(batch: list[list[str]]) -> list[list[str]]:
    """Return jobs that together have every override of a batch; each has the most that the others lack."""
    missing, chosen = {override for job in batch for override in job}, []
    while missing:
        chosen.append(max(batch, key=lambda job: len(missing & {*job})))
        missing -= {*chosen[-1]}
    return chosen


def composed(overrides: list[str]) -> DictConfig:
    config = compose("train", overrides=accept(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    return config


def run_config(overrides: list[str]) -> DictConfig:
    """Return the configuration of a job's run directory."""
    return resolve(composed(overrides))


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_quick_study_has_few_jobs_and_another_name(study: str) -> None:
    with initialize_conf():
        batch = jobs(study, "quick=true")
        assert 2 <= len(batch) <= 8
        config = run_config(batch[-1])
        assert config.name == f"{study}_quick"
        assert find_error(config) is None


def test_command_line_overrides_replace_the_grid() -> None:
    with initialize_conf():
        batch = jobs("attention_variants", "quick=true", "seed=7", "trainer.max_epochs=1")
        seeds = [override for job in batch for override in job if override.startswith("seed=")]
        assert seeds == ["seed=7"] * 3
        assert composed(batch[0]).trainer.max_epochs == 1


def test_attention_variants_has_every_mechanism() -> None:
    with initialize_conf():
        swept = {override.split("=")[1] for job in jobs("attention_variants") for override in job[:1]}
    assert swept == {path.stem for path in Path(CONF / "attention").glob("*.yaml")}


def test_values_of_a_study_stand_for_overrides() -> None:
    further = {"model": {"mingru": ["encoder=mingru", "encoder.size=48"], "dot": ["attention=dot"]}}
    job = ["seed=1", "model=mingru", "encoder.size=8"]
    assert expand(job, further) == ["encoder=mingru", *job]  # the job's own encoder.size is kept
    assert expand(job, {}) == job
    with pytest.raises(UsageError, match="model=gru: choose from mingru, dot"):
        expand(["model=gru"], further)


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_every_job_of_a_study_builds_under_a_unique_name(study: str) -> None:
    with initialize_conf():
        configs = [run_config(overrides) for overrides in covering(jobs(study, "seed=0"))]
        assert [find_error(config) for config in configs] == [None] * len(configs)
        assert len({config.variant for config in configs}) == len(configs)
        assert {config.name for config in configs} == {study}
