"""Settings of the network that depend on the number of training pairs.

The text `64 300:128` is 64 for up to 299 training pairs, and 128 for more; further numbers of pairs may
follow, in ascending order. An override replaces such a text, while a mapping would be merged with it.
"""

import logging
import re
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from attnlab.config.trust import walk

log = logging.getLogger(__name__)

ALLOWED_IN = ("embedding", "target_embedding", "encoder", "attention", "attention_size", "decoder", "readout")
"""Sections, and settings outside all sections, that may have such texts."""


def values_by_pairs(name: str, value: Any) -> dict[int, Any]:
    """Return the values of a setting by the least number of training pairs for which they hold.

    It is empty if the setting, given by its dotted name, has one value.
    """
    if name.partition(".")[0] not in ALLOWED_IN or not re.fullmatch(r"\S+( [1-9]\d*:\S+)+", str(value)):
        return {}
    first, *others = str(value).split(" ")
    pairs = [("1", first), *(each.split(":", 1) for each in others)]
    numbers = [int(least) for least, _ in pairs]
    if numbers != sorted({*numbers}):
        return {}
    values = {int(least): yaml.safe_load(text) for least, text in pairs}
    if any(isinstance(each, dict | list) for each in values.values()):
        return {}  # a section could name a class that `trust.check` has not seen
    return values


def settings_by_pairs(config: DictConfig) -> dict[str, dict[int, Any]]:
    """Return the values by numbers of training pairs of all settings that have them, by dotted name."""
    nodes = {key.removeprefix("."): node for key, node in walk(OmegaConf.to_container(config), key="")}
    return {name: values for name, node in nodes.items() if (values := values_by_pairs(name, node))}


def at_pairs(config: DictConfig, pairs: int) -> DictConfig:
    """Return the configuration with the values for a number of training pairs."""
    config = config.copy()
    for name, values in settings_by_pairs(config).items():
        OmegaConf.update(config, name, values[max(least for least in values if least <= max(pairs, 1))])
    return config


def choose_by_pairs(config: DictConfig, pairs: int) -> DictConfig:
    """Return the configuration of `at_pairs`, and log the chosen values."""
    chosen = at_pairs(config, pairs)
    if names := [*settings_by_pairs(config)]:
        values = ", ".join(f"{name}={OmegaConf.select(chosen, name)}" for name in names)
        log.info("%s training pairs: %s", f"{pairs:,}", values)
    return chosen


def each_size(config: DictConfig) -> list[DictConfig]:
    """Return the configurations for the numbers of training pairs from which a value changes."""
    numbers = {1, *(least for values in settings_by_pairs(config).values() for least in values)}
    return [at_pairs(config, number) for number in sorted(numbers)]
