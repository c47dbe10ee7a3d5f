"""Compositions of configurations that share the options of their groups."""

from collections.abc import Sequence
from functools import cache

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from attnlab.config.compose import accept, add_chosen_parts
from attnlab.config.hydra_versions import initialize_conf
from attnlab.config.options import CONF


@cache
def compose_options(*overrides: str) -> DictConfig:
    """Compose the configuration with these options of groups; do not change the result."""
    with initialize_conf():
        return compose("train", overrides=[*overrides], return_hydra_config=True)


def chooses_option(override: str) -> bool:
    """Return whether an override chooses an option of a group rather than giving a value."""
    key = override.partition("=")[0].lstrip("+~").partition("@")[0]
    return "@" in override.partition("=")[0] or (CONF / key).is_dir()


def compose_values(*overrides: str) -> DictConfig:
    """Compose a configuration without its `hydra` node, which becomes that of `HydraConfig`.

    Compositions of the same options are shared; values are assigned as Hydra does.
    """
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
    add_chosen_parts(composed)
    return composed


def first_job(overrides: Sequence[str]) -> list[str]:
    """Return the overrides of the first job of a sweep over these overrides."""
    return [
        f"{each.get_key_element()}={first_value(each)}" if each.is_sweep_override() else each.input_line
        for each in OverridesParser.create().parse_overrides([*overrides])
    ]


def first_value(sweep: Override) -> str:
    """Return the first or the smallest value of a sweep."""
    if isinstance(sweep.value(), Glob):
        return min(path.stem for path in (CONF / sweep.get_key_element()).glob("*.yaml"))
    return str(sweep.value().start if sweep.is_interval_sweep() else next(sweep.sweep_string_iterator()))
