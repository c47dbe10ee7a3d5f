"""Composing a configuration out of `conf/` and the words of a command. Imports no torch."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from attnlab.config.renamed_settings import explain_renamed
from attnlab.errors import UserError

_PACKAGE = Path(__file__).resolve().parents[1]
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parents[1] / "conf"
"""Where the groups lie: inside an installed package, or at the top of a checkout."""

REPLACEABLE = ("reranking",)
"""Groups whose option can be changed in a trained run, because no other setting depends on it."""

OmegaConf.register_new_resolver("quick", lambda short, full, *, _root_: short if _root_.quick else full)
"""`${quick:a,b}` is a where `quick=true` is set, else b."""


def _from_step(first: str, then: Any, before: Any, *, _root_: DictConfig) -> Any:
    """Return `then` if the setting `step` is `first` or later in the list `steps`, else `before`."""
    steps = list(_root_.steps)
    if _root_.step not in steps:
        raise ValueError(f"step={_root_.step}: choose from {', '.join(steps)}")
    return then if steps.index(_root_.step) >= steps.index(first) else before


OmegaConf.register_new_resolver("from_step", _from_step)


def compose_run(words: list[str]) -> DictConfig:
    """The resolved configuration that `attnlab train` makes of these words.

    Raises:
        HydraException, OmegaConfBaseException: at a word that does not fit; `explain` says which in one line.
    """
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("train", overrides=words, return_hydra_config=True)
        HydraConfig.instance().set_config(config)  # ${hydra:runtime.choices.data} is looked up there
        with read_write(config), open_dict(config):
            del config["hydra"]
        OmegaConf.resolve(config)
    return config


def apply_overrides(config: DictConfig, overrides: list[str]) -> DictConfig:
    """A configuration with `key=value` words applied.

    Raises:
        UserError: at a key that the configuration lacks, with the nearest it has, and at what is no value.
    """
    changed = config.copy()
    try:
        parsed = OverridesParser.create().parse_overrides(overrides)
    except HydraException as error:
        raise UserError(str(error).splitlines()[0]) from error
    keys = all_keys(changed)
    for override in parsed:
        key = override.key_or_group
        if key in REPLACEABLE:
            try:
                changed[key] = compose_run([str(override.input_line)])[key]
            except HydraException as error:
                raise UserError(explain(error)) from error
            continue
        if key not in keys:
            if outdated := explain_renamed(key, str(override.input_line).partition("=")[2]):
                raise UserError(outdated)
            raise UserError(f"no setting {key!r} in this run{suggest(key, keys)}")
        if override.is_delete() or override.is_add() or override.is_sweep_override():
            raise UserError(f"{override.input_line}: give one value, as {key}=…; a list stands in brackets")
        if isinstance(OmegaConf.select(changed, key), DictConfig):
            raise UserError(
                f"{override.input_line}: {key} is a group; give single settings of it, as {key}.…=…"
            )
        OmegaConf.update(changed, key, override.value())
    return changed


def all_keys(config: DictConfig) -> list[str]:
    """Every dotted key of a configuration."""

    def walk(node: Any, prefix: str) -> list[str]:
        if not isinstance(node, dict):
            return []
        return [
            key
            for name, child in node.items()
            for key in (f"{prefix}{name}", *walk(child, f"{prefix}{name}."))
        ]

    return walk(OmegaConf.to_container(config, resolve=False), "")


def suggest(name: str, known: list[str]) -> str:
    """The nearest known name as a question to append to a message, or nothing."""
    near = difflib.get_close_matches(name, [key for key in known if key != name], n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def explain(error: HydraException | OmegaConfBaseException) -> str:
    """One line for what Hydra says in several, with the nearest name where a key was mistyped."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    option = re.search(
        r"Could not find '(\S+)/(\S+)' Available options in '\S+': (.*?) Config search path", text
    )
    if option is not None:
        group, name, options = option.groups()
        if outdated := explain_renamed(*f"{group}/{name}".split("/", maxsplit=1)):
            return outdated
        return f"no option {name!r} for {group}{suggest(name, options.split())}; there are {options}"
    mistyped = re.search(r"Could not override '([^'@]+)'", text)
    if mistyped is None:
        return text
    key = mistyped[1]
    if value := re.search(r" \+[^\s=]+=(.*)$", text):
        outdated = explain_renamed(key, value[1])
        if outdated:
            return outdated
    known = all_keys(compose_run(["+tune=default"] if key.startswith("tune.") else []))
    if key in known:
        group = key.partition(".")[0]
        return f"no setting {key!r} with this choice of {group} (add --cfg job to see its settings)"
    return f"no setting {key!r}{suggest(key, known)} (attnlab train --cfg job shows all settings)"
