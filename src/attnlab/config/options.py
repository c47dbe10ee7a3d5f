"""The option files of `conf/`: their names and their keys. Imports no torch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from attnlab.errors import UsageError

_PACKAGE = Path(__file__).resolve().parents[1]
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parents[1] / "conf"
"""Folder of the config groups: inside an installed package, or at the top of a checkout."""

PRESETS = ("experiment", "study", "debug", "data")
"""Groups whose options set keys of other groups."""

OPTIONAL = ("experiment", "study", "debug", "explain", "tokenizer@target_tokenizer")
"""Groups of which no option has to be chosen."""


def options_of(group: str) -> list[str]:
    """Return the names of the shipped options of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def suggest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean 'NEAREST'?", to append to a message, or "" if no name is similar."""
    near = difflib.get_close_matches(name, [other for other in names if other != name], n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_overrides(overrides: Iterable[str]) -> None:
    """Refuse overrides that remove a group which every run needs; Hydra would end with a stack trace.

    Raises:
        UsageError: at an override such as `encoder=null`.
    """
    for override in overrides:
        group, _, option = override.partition("=")
        if option.strip() in ("null", "", "''", '""') and group not in OPTIONAL and options_of(group):
            raise UsageError(f"{override}: choose an option of {group}: {', '.join(options_of(group))}")


def check_added_settings() -> None:
    """Refuse a setting that was added with + and that no part of attnlab reads.

    A group of the user's is allowed, and a value that another override refers to: `+width=64
    encoder.size='${width}'`. `HydraConfig` must be that of the configuration.

    Raises:
        UsageError: at an override such as `+foo=1`.
    """
    hydra = HydraConfig.get()
    overrides: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        name = key.partition(".")[0].partition("@")[0]
        allowed = key in hydra.runtime.choices or name.partition("/")[0] in _top_level_keys()
        if override.startswith("+") and not allowed and "${" + name not in " ".join(overrides):
            nearest = suggest(name, _top_level_keys())
            raise UsageError(f"{override}: no part of attnlab has a setting {name!r}.{nearest}")


@cache
def _top_level_keys() -> frozenset[str]:
    """Return the groups, and the settings outside of groups, of all shipped files."""
    groups = ("experiment", "study", "debug")  # their files set keys of the whole configuration
    files = [CONF / "train.yaml", *(path for group in groups for path in (CONF / group).glob("*.yaml"))]
    settings = {str(key) for path in files for key in yaml.safe_load(path.read_text(encoding="utf-8")) or {}}
    return frozenset(settings | {path.name for path in CONF.iterdir() if path.is_dir()})


def remove_debug_settings(config: DictConfig) -> None:
    """Remove the settings of a preset of `debug` that the chosen options do not have, in place.

    Such a preset combines with all options. `HydraConfig` must be that of this configuration.
    """
    preset = f"debug={HydraConfig.get().runtime.choices.get('debug')}"
    for choice in _choices(config):
        with read_write(choice.node), open_dict(choice.node):
            for key, presets in choice.missing.items():
                if presets == [preset]:
                    del choice.node[key]


def check_option_keys(config: DictConfig) -> None:
    """Check that presets set only keys that the chosen options have, and keep the class of a given option.

    A key is refused if another shipped option of the group has it and the chosen one does not. Further
    arguments of a class are allowed. `HydraConfig` must be that of this configuration.

    Raises:
        UsageError: at the first group with such keys, or at an option that has no effect.
    """
    for choice in _choices(config):
        override = f"{choice.selected}={choice.option}"
        target = _read(choice.group, choice.option).get("_target_")
        if choice.selected in _overridden() and target is not None and target != choice.node["_target_"]:
            preset = _presets_with(f"{choice.package}._target_")[0]
            raise UsageError(f"{override} has no effect, because {preset} sets {choice.package}._target_")
        if choice.missing:
            names = ", ".join(map(repr, choice.missing))
            removals = " ".join(f"~{choice.package}.{key}" for key in choice.missing)
            first, (preset, *_) = next(iter(choice.missing.items()))
            others = {key: name for name in options_of(choice.group) for key in keys_of(choice.group, name)}
            raise UsageError(
                f"{override} has no setting {names}, which {preset} sets: add {removals}, or choose "
                f"{choice.selected}={others[first]}"
            )


class _Choice(NamedTuple):
    """A chosen option of attnlab and the keys that it lacks, with the presets that set them."""

    selected: str
    group: str
    package: str
    option: str
    node: DictConfig
    missing: dict[str, list[str]]


def _choices(config: DictConfig) -> Iterator[_Choice]:
    """Yield the chosen shipped options of a configuration that build a class of attnlab."""
    for selected, option in HydraConfig.get().runtime.choices.items():
        group, _, package = selected.partition("@")
        package = package or group
        node = OmegaConf.select(config, package)
        if group in PRESETS or not isinstance(node, DictConfig) or option not in options_of(group):
            continue
        if not str(node.get("_target_", "")).startswith("attnlab."):
            continue
        known = {key for name in options_of(group) for key in keys_of(group, name)} - keys_of(group, option)
        missing = {
            str(key): _presets_with(f"{package}.{key}")
            for key in node
            if key in known and f"{package}.{key}" not in _overridden()
        }
        yield _Choice(selected, group, package, option, node, missing)


def _overridden() -> set[str]:
    """Return the groups and settings that are given by overrides."""
    return {override.lstrip("+").partition("=")[0] for override in HydraConfig.get().overrides.task}


@cache
def keys_of(group: str, option: str) -> frozenset[str]:
    """Return the keys of an option, without those that start with an underscore."""
    content = _read(group, option)
    nested = {
        str(group_at).rpartition("@")[2]
        for entry in content.get("defaults", [])
        if isinstance(entry, dict)
        for group_at in entry
        if "@" in str(group_at)
    }
    settings = content.get(group, content)  # one level deeper in a file with the package _global_
    return frozenset(
        str(key) for key in {*settings, *nested} if not str(key).startswith("_") and key != "defaults"
    )


def _read(group: str, option: str) -> dict[str, Any]:
    return yaml.safe_load((CONF / group / f"{option}.yaml").read_text(encoding="utf-8")) or {}


def _presets_with(key: str) -> list[str]:
    """Return the chosen presets that set a key, such as "experiment=conala", or "the configuration"."""
    choices = HydraConfig.get().runtime.choices
    chosen = [(group, str(choices.get(group))) for group in PRESETS]
    presets = [
        f"{group}={option}"
        for group, option in chosen
        if option in options_of(group) and _has(_read(group, option), key.split("."))
    ]
    return presets or ["the configuration"]


def _has(content: Any, path: Sequence[str]) -> bool:
    """Return whether nested mappings have a key, with any value."""
    if not path:
        return True
    return isinstance(content, Mapping) and path[0] in content and _has(content[path[0]], path[1:])
