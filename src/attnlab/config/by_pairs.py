"""Settings of the network that depend on the number of training pairs.

Such a setting is a table from numbers of training pairs to values: `{1: 64, 300: 128}` is 64 for up to 299
pairs, and 128 for more. One value in its place holds for any number.
"""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from attnlab.config.trust import walk

SECTIONS = ("embedding", "target_embedding", "encoder", "attention", "attention_size", "decoder", "readout")
"""Sections and settings in which tables are allowed."""


def is_table(name: str, value: Any) -> bool:
    """Return whether the value of a setting, given by its dotted name, is a table."""
    keys = value.keys() if isinstance(value, Mapping) else ()
    return name.partition(".")[0] in SECTIONS and bool(keys) and all(str(key).isdigit() for key in keys)


def tables(config: DictConfig) -> dict[str, Mapping[Any, Any]]:
    """Return the tables of a configuration by the dotted names of their settings."""
    nodes = walk(OmegaConf.to_container(config, resolve=True), key="")
    return {name: node for key, node in nodes if is_table(name := key.removeprefix("."), node)}


def at_pairs(config: DictConfig, pairs: int = 1) -> DictConfig:
    """Return the configuration with the value for a number of training pairs in the place of each table."""
    config = config.copy()
    for name, table in tables(config).items():
        least = max((key for key in table if int(key) <= pairs), key=int, default=min(table, key=int))
        OmegaConf.update(config, name, table[least], merge=False)
    return config
