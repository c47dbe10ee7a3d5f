"""Composing configurations from `conf/` and command-line overrides. Imports no torch."""

from __future__ import annotations

import re
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from attnlab.config.options import (
    CONF,
    check_added_settings,
    check_option_keys,
    check_overrides,
    options_of,
    remove_debug_settings,
    suggest,
)
from attnlab.config.renamed_settings import explain_renamed
from attnlab.config.validation import check_settings
from attnlab.errors import UsageError

REPLACEABLE = ("reranking", "explain")
"""Groups whose option can be changed in a trained run, because no other setting depends on it."""

OmegaConf.register_new_resolver("quick", lambda short, full, *, _root_: short if _root_.quick else full)
"""`${quick:a,b}` is a if `quick=true`, else b."""


def _from_step(first: str, then: Any, before: Any, *, _root_: DictConfig) -> Any:
    """Return `then` if the setting `step` is `first` or later in the list `steps`, else `before`."""
    steps = list(_root_.steps)
    if _root_.step not in steps:
        raise ValueError(f"step={_root_.step}: choose from {', '.join(steps)}")
    return then if steps.index(_root_.step) >= steps.index(first) else before


OmegaConf.register_new_resolver("from_step", _from_step)


def compose_run(overrides: list[str]) -> DictConfig:
    """Return the resolved configuration that `attnlab train` composes from these overrides.

    Raises:
        HydraException, OmegaConfBaseException: at a wrong override; `explain` describes it in one line.
        UsageError: at a value that is not allowed.
    """
    check_overrides(overrides)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return resolve(compose("train", overrides=overrides, return_hydra_config=True))


def resolve(config: DictConfig) -> DictConfig:
    """Return a composed configuration without its `hydra` node, with all interpolations resolved.

    Raises:
        UsageError: if a setting has a value that is not allowed.
    """
    HydraConfig.instance().set_config(config)  # ${hydra:runtime.choices.data} is looked up there
    resolved = config.copy()
    with read_write(resolved), open_dict(resolved):
        del resolved["hydra"]
    OmegaConf.resolve(resolved)
    check_added_settings()
    remove_debug_settings(resolved)
    check_option_keys(resolved)
    check_settings(resolved)
    return resolved


def apply_overrides(config: DictConfig, overrides: list[str]) -> DictConfig:
    """Return a copy of a configuration with `key=value` overrides applied.

    Raises:
        UsageError: if a key does not exist, or an override does not give it a single value.
    """
    changed = config.copy()
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise UsageError(explain(error)) from error
    for override in sorted(parsed, key=lambda override: override.key_or_group not in REPLACEABLE):
        key = override.key_or_group
        if key in REPLACEABLE:  # before single settings, as in Hydra
            try:
                changed[key] = compose_run([str(override.input_line)]).get(key)
            except HydraException as error:
                raise UsageError(explain(error)) from error
            continue
        keys = all_keys(changed)
        if key.startswith("search.") and key not in keys:  # runs of earlier versions lack later settings
            keys += all_keys(compose_run([]))
        if key not in keys:
            if outdated := explain_renamed(key, str(override.input_line).partition("=")[2]):
                raise UsageError(outdated)
            raise UsageError(f"Unknown setting {key!r} in this run.{suggest(key, keys)}")
        if override.is_delete() or override.is_add() or override.is_sweep_override():
            raise UsageError(f"{override.input_line}: give one value, as {key}=VALUE; a list is [A,B]")
        if isinstance(OmegaConf.select(changed, key), DictConfig):
            raise UsageError(f"{override.input_line}: {key} is a group; give its single settings, {key}.…=…")
        OmegaConf.update(changed, key, override.value(), force_add=True)
    return changed


def all_keys(config: DictConfig) -> list[str]:
    """Return every dotted key of a configuration."""

    def walk(node: Any, prefix: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        return [
            key
            for name, child in node.items()
            for key in (f"{prefix}{name}", *walk(child, f"{prefix}{name}."))
        ]

    return walk(OmegaConf.to_container(config, resolve=False), "")


def explain(error: HydraException | OmegaConfBaseException) -> str:
    """Describe one of Hydra's errors in one line, with the nearest name if one was mistyped."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    unknown_option = re.search(r"Could not (?:find|load) '(\S+)/(\S+)'", text)
    if unknown_option is not None:
        group, name = unknown_option.groups()
        if outdated := explain_renamed(*f"{group}/{name}".split("/", maxsplit=1)):
            return outdated
        available = re.search(r"Available options in '\S+': (.*?) Config search path", text)
        options = available[1].split() if available else options_of(group)
        return f"Unknown {group} {name!r}.{suggest(name, options)} Options: {', '.join(options)}"
    if "Environment variable 'HOME' not found" in text:
        return "HOME is not set: set it, or give a folder for downloads, paths.cache=FOLDER"
    invalid = re.search(r" raised while resolving interpolation: (.*?)(?: full_key: |$)", text)
    if invalid is not None:
        return invalid[1]
    if isinstance(error, OverrideParseException):
        override = str(error.override)
        if "=" not in override:
            return f"{override}: not a setting; write KEY=VALUE"
        quoted = "{}='\"{}\"'".format(*override.partition("=")[::2])
        return f"{override}: cannot be parsed; quote a value with special characters: {quoted}"
    unknown_key = re.search(r"Could not override '([^'@]+)'", text)
    if unknown_key is None:
        return text
    key = unknown_key[1]
    assigned = re.search(r" \+[^\s=]+=(.*)$", text)
    if assigned and (outdated := explain_renamed(key, assigned[1])):
        return outdated
    keys = all_keys(compose_run(["+tune=default"] if key.startswith("tune.") else []))
    if key in keys:
        group = key.partition(".")[0]
        return (
            f"Unknown setting {key!r} for this choice of {group}: attnlab train --cfg job {group}=… shows "
            "its settings"
        )
    return f"Unknown setting {key!r}.{suggest(key, keys)} attnlab train --cfg job shows all settings"
