"""The hash that identifies a run by its configuration."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

NOT_IDENTITY = ("force", "quick", "paths", "logger", "data.cache", "checkpoint.every_minutes")
"""Settings that do not change the results: output folders, loggers, and how other settings were chosen."""


def identify(config: DictConfig) -> str:
    """Return eight hexadecimal digits, equal for equal resolved configurations."""
    settings = OmegaConf.to_container(config, resolve=True)
    assert isinstance(settings, dict)
    return short_hash(identity(settings))


def identity(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return every setting that determines the results, by its dotted name: all except `NOT_IDENTITY`."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if name not in NOT_IDENTITY:
            flat |= identity(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def short_hash(value: Any) -> str:
    """Return eight hexadecimal digits of the SHA-256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
