"""Presets, whose options set keys of other groups, combined with the options of those. Imports no torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from attnlab.config.checks import unknown_settings
from attnlab.config.options import keys_of, options_of, read_option, suggest, top_level_keys
from attnlab.config.sections import SECTIONS
from attnlab.errors import UsageError

PRESETS = ("experiment", "study", "debug", "data")
"""Groups whose options set keys of other groups."""


def check_added_settings() -> None:
    """Refuse a setting outside all sections that was added with + and that nothing reads.

    A group of the user's is allowed, and a value that another override refers to: `+width=64
    encoder.size='${width}'`. `HydraConfig` must be that of the configuration.
    """
    hydra = HydraConfig.get()
    overrides: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    used = " ".join(overrides).replace("\\", "")  # the jobs of sweeps have \{ and \} in place of brackets
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        name = key.partition(".")[0].partition("@")[0]
        known = {*top_level_keys(), *SECTIONS, *SECTIONS[""].signature(None).arguments}
        allowed = key in hydra.runtime.choices or name.partition("/")[0] in known
        if override.startswith("+") and not allowed and "${" + name not in used:
            nearest = suggest(name, known)
            raise UsageError(f"{override}: no part of attnlab has a setting {name!r}.{nearest}")


def adapt_presets(config: DictConfig) -> None:
    """Check that presets set only what the chosen options have; those of `debug` combine with all options.

    What an option lacks is removed from the configuration if only a preset of `debug` sets it. `HydraConfig`
    must be that of the configuration.
    """
    overridden = {word.lstrip("+").partition("=")[0] for word in HydraConfig.get().overrides.task}
    settings: Any = OmegaConf.to_container(config, resolve=True)
    lacking: dict[tuple[str, str], list[str]] = {}
    for name in unknown_settings(settings):
        section, _, key = name.rpartition(".")
        presets = [] if name in overridden else _presets_with(name)
        if presets and all(preset.startswith("debug=") for preset in presets):
            node = OmegaConf.select(config, section)
            with read_write(node), open_dict(node):
                del node[key]
        elif presets:
            lacking.setdefault((section, presets[0]), []).append(key)
    options = {selected.rpartition("@")[2]: selected for selected in HydraConfig.get().runtime.choices}
    for (section, preset), keys in lacking.items():
        if selected := options.get(section):
            raise UsageError(_describe_lack(selected, section, preset, keys))
    for section, selected in options.items():
        option = HydraConfig.get().runtime.choices[selected]
        group = selected.partition("@")[0]
        if selected in overridden and group not in PRESETS and option in options_of(group):
            key, target = f"{section}._target_", read_option(group, option).get("_target_")
            if target not in (None, OmegaConf.select(config, key)) and key not in overridden:
                preset = [*_presets_with(key), "the configuration"][0]
                raise UsageError(f"{selected}={option} has no effect, because {preset} sets {key}")


def _describe_lack(selected: str, section: str, preset: str, keys: Sequence[str]) -> str:
    group = selected.partition("@")[0]
    option = HydraConfig.get().runtime.choices[selected]
    names, removals = ", ".join(map(repr, keys)), " ".join(f"~{section}.{key}" for key in keys)
    message = f"{selected}={option} has no setting {names}, which {preset} sets: add {removals}"
    others = [name for name in options_of(group) if keys[0] in keys_of(group, name)]
    return f"{message}, or choose {selected}={others[-1]}" if others else message


def _presets_with(key: str) -> list[str]:
    """Return the chosen presets that set a key, such as "experiment=conala"."""
    choices = HydraConfig.get().runtime.choices
    chosen = [(group, str(choices.get(group))) for group in PRESETS]
    return [
        f"{group}={option}"
        for group, option in chosen
        if option in options_of(group) and _has(read_option(group, option), key.split("."))
    ]


def _has(content: Any, path: Sequence[str]) -> bool:
    """Return whether nested mappings have a key, with any value."""
    if not path:
        return True
    return isinstance(content, Mapping) and path[0] in content and _has(content[path[0]], path[1:])
