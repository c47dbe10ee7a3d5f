"""The hash that identifies a run by its configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

NOT_IDENTITY = (
    "force",
    "quick",
    "oversubscribe",
    "paths",
    "logger",
    "data.cache",
    "checkpoint.every_minutes",
    "checkpoint.keep",
)
"""Settings that do not change the results: output folders, loggers, and how other settings were chosen."""

DEVICE_COUNTS = ("trainer.devices", "trainer.num_nodes", "trainer.strategy")
"""Settings that do not change the results of a run with `batching.shards`."""


def identify(config: DictConfig) -> str:
    """Return eight hexadecimal digits, equal for equal resolved configurations."""
    settings = OmegaConf.to_container(config, resolve=True)
    assert isinstance(settings, dict)
    return short_hash(identity(settings))


def identity(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Return every setting that determines the results, by its dotted name.

    These are all settings except `NOT_IDENTITY`, and except `DEVICE_COUNTS` if there are shards.
    """
    flat = flatten(settings)
    excluded = NOT_IDENTITY if flat.get("batching.shards") is None else (*NOT_IDENTITY, *DEVICE_COUNTS)
    sections = tuple(f"{name}." for name in excluded)
    return {name: value for name, value in flat.items() if not f"{name}.".startswith(sections)}


def flatten(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return every setting by its dotted name."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def short_hash(value: Any) -> str:
    """Return eight hexadecimal digits of the SHA-256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
