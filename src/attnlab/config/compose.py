"""Composing configurations from `conf/` and command-line overrides. Imports no torch."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString, RangeSweep
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from attnlab.config.checks import (
    HYDRA_KEYS,
    allowed_settings,
    check_plain,
    check_settings,
    known_settings,
    read_text,
)
from attnlab.config.hydra_versions import initialize_conf, register_resolver, searchpath
from attnlab.config.options import (
    CONF,
    PARTS,
    REPLACEABLE,
    check_name,
    default_options,
    defaults_of,
    key_of,
    keys_of,
    options_of,
    read_option,
    suggest,
    top_level_keys,
)
from attnlab.config.sections import SECTIONS
from attnlab.errors import UsageError, UserError
from attnlab.files.run_identity import flatten
from attnlab.files.yaml import read_yaml
from attnlab.settings import RunSettings

FOLDERS = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir")
"""Settings of Hydra that attnlab does not obey."""

register_resolver("quick", lambda short, full, *, _root_: short if _root_.quick else full)
"""`${quick:a,b}` is a if `quick=true`, else b."""


register_resolver("cache_home", lambda: os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
"""The user's folder for caches, also if HOME is not set."""


def _from_step(first: str, then: Any, before: Any, *, _root_: DictConfig) -> Any:
    """Return `then` if the setting `step` is `first` or later in the list `steps`, else `before`."""
    steps = list(_root_.steps)
    if _root_.step not in steps:
        raise ValueError(f"step={_root_.step}: choose from {', '.join(steps)}")
    return then if steps.index(_root_.step) >= steps.index(first) else before


register_resolver("from_step", _from_step)


def as_list(overrides: Sequence[str]) -> list[str]:
    """Return settings as a list; raise `UserError` if they are one string, a sequence of letters."""
    if isinstance(overrides, str):
        raise UserError(f"overrides={overrides!r}: give a list of settings, such as ['seed=1']")
    return list(overrides)


def compose_run(overrides: list[str]) -> DictConfig:
    """Return the resolved configuration that `attnlab train` composes from these overrides.

    The arguments of constructors are not checked: see `attnlab.config.checks.check_settings`.

    Raises:
        HydraException, OmegaConfBaseException: at a wrong override; `explain` describes it in one line.
        UsageError: at a value that is not allowed.
    """
    check_overrides(overrides)
    with initialize_conf():
        return resolve(
            compose("train", overrides=[*accept(overrides), *searchpath()], return_hydra_config=True)
        )


def check_shown(overrides: list[str]) -> None:
    """Refuse settings that a configuration to be shown cannot have; imports classes only if it must."""
    config = compose_run(overrides)
    choices = HydraConfig.get().runtime.choices
    for word in overrides:
        group, _, key = word.lstrip("+~").partition("=")[0].partition(".")
        option = choices.get(group)
        named = keys_of(group, option) if option in options_of(group) else frozenset(_read_section(group))
        if key and key.partition(".")[0] not in named | {*_read_section(group)}:
            check_settings(config)
            return


def _read_section(name: str) -> Mapping[str, Any]:
    content = read_yaml(CONF / "train.yaml").get(name)
    return content if isinstance(content, Mapping) else {}


def accept(overrides: list[str]) -> list[str]:
    """Return the overrides with `++` before settings of sections, which the chosen options may not name.

    So `trainer.limit_val_batches=3` needs no +. The checks refuse settings that do not exist. Neither
    does a new setting that another override refers to, as in `lang=ady,gre data.train='${lang}_train.tsv'`.
    """
    referred = {*re.findall(r"\$\\?\{(\w+)", " ".join(overrides))} - top_level_keys()
    accepted = []
    for override in overrides:
        key, equals, value = override.partition("=")
        name = key.lstrip("+")
        always = name in (*referred, "name", "variant")
        quote = equals and (always or _is_text(name))
        word = (
            f"{key}={_quote_texts(value, null=always, numbers=name not in referred)}" if quote else override
        )
        accepted.append(f"++{word}" if re.match(_accepted(), word) or key in referred else word)
    return accepted


def _is_text(name: str) -> bool:
    """Return whether every option that gives a setting a value gives it a text."""
    defaults = defaults_of(name) if "." in name and "@" not in name else []
    return bool(defaults) and all(isinstance(default, str) for default in defaults)


def _quote_texts(value: str, *, null: bool, numbers: bool) -> str:
    """Quote the values of an override, or of a sweep, that Hydra would read as numbers, flags or null."""
    if value[:1] in ("'", '"'):
        return value
    others = r"nan|[+-]?inf|true|false|[+-]?\d[\d_.]*e[+-]?\d+|[+-]?\d+(_\d+)+"
    others += "|null" * null + r"|[+-]?(\d+\.?\d*|\.\d+)" * (null and numbers)
    values = value.split(",")
    return ",".join(f"'{each}'" if re.fullmatch(others, each, re.IGNORECASE) else each for each in values)


@cache
def _accepted() -> str:
    """Return a pattern of overrides of sections, and of settings that `conf/train.yaml` does not name."""
    sections = "|".join(name for name in SECTIONS if name and "." not in name)
    others = "|".join(RunSettings.__annotations__.keys() - read_yaml(CONF / "train.yaml").keys())
    return rf"(?:(?:{sections})\.[\w.]+|{others})="


def check_overrides(overrides: Iterable[str]) -> None:
    """Refuse overrides of groups that name no option; Hydra would end with a stack trace."""
    for word in overrides:
        group = word.lstrip("+").partition("=")[0].partition("@")[0]
        check_name(group)
        if group in FOLDERS:
            raise UsageError(
                f"{word}: attnlab chooses the folders of runs; paths.output=FOLDER sets where they are"
            )
        options = options_of(group)
        if word.startswith("~") and (name := word[1:].partition("=")[0]) in default_options():
            choice = "none" if "none" in options_of(name) else "OPTION"
            raise UsageError(f"{word}: a group cannot be deleted; choose another option, {name}={choice}")
        if not options or word.startswith(("~", "-")):
            continue
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            continue  # Hydra reports it
        if override.is_sweep_override():
            continue
        value = override.value()
        chosen = value if isinstance(value, list) else [value]
        if not chosen or not all(
            isinstance(each, str | QuotedString) and str(each).strip() for each in chosen
        ):
            raise UsageError(f"{word}: choose an option of {group}: {', '.join(options)}")
        for name in {*map(str, chosen)} & {*options}:
            read_option(group, name)  # an error names the file


def check_sweeps(overrides: Sequence[Override]) -> None:
    """Refuse sweeps without a value, and several sweeps over one setting: Hydra would use the last one."""
    for override in overrides:
        if isinstance(override.value(), RangeSweep) and not [*override.sweep_string_iterator()]:
            raise UsageError(f"{override.input_line}: the sweep is empty; range(START,STOP) has no STOP")
    for key, count in Counter(map(key_of, overrides)).items():
        given = [override for override in overrides if key_of(override) == key]
        if count > 1 and any(override.is_sweep_override() for override in given):
            words = " ".join(str(override.input_line) for override in given)
            values = ",".join(override.get_value_string() for override in given)
            raise UsageError(f"{words}: give all values of {key} in one sweep, {key}={values}")


def resolve(config: DictConfig) -> DictConfig:
    """Return a composed configuration without its `hydra` node, with all interpolations resolved."""
    HydraConfig.instance().set_config(config)  # ${hydra:runtime.choices.data} is looked up there
    resolved = config.copy()
    with read_write(resolved), open_dict(resolved):
        del resolved["hydra"]
    add_chosen_parts(resolved)
    OmegaConf.resolve(resolved)
    check_composed(resolved)
    return resolved


def add_chosen_parts(config: DictConfig) -> None:
    """Complete callbacks, loggers and loss terms of which only some settings are given by their options."""
    for group, path in PARTS.items():
        parts = OmegaConf.select(config, path)
        if not isinstance(parts, DictConfig):
            continue  # `check_plain` reports it, or it is null: no callbacks
        with read_write(config), open_dict(config):
            for name, given in [*parts.items()]:
                if not isinstance(given, DictConfig):
                    continue
                if "_target_" not in given and name in options_of(group):
                    option = OmegaConf.create(read_option(group, str(name))[str(name)])
                    parts[name] = OmegaConf.merge(option, given)


def check_composed(config: DictConfig) -> None:
    """Check a composed configuration; remove settings of `debug` that the chosen options lack."""
    add_chosen_parts(config)
    _check_added_settings()
    _adapt_presets(config)
    _read_numbers(config)
    check_plain(OmegaConf.to_container(config, resolve=True), config)


def _check_added_settings() -> None:
    """Refuse a setting outside all sections that was added with + and that nothing reads.

    A group of the user's is allowed, and a value that another override refers to: `+width=64
    encoder.size='${width}'`.
    """
    hydra = HydraConfig.get()
    overrides: Any = OmegaConf.to_container(hydra.overrides.task, resolve=False)
    used = " ".join(overrides).replace("\\", "")  # the jobs of sweeps have \{ and \} in place of brackets
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        name = key.partition(".")[0].partition("@")[0]
        known = {*top_level_keys(), *SECTIONS, *RunSettings.__annotations__}
        allowed = key in hydra.runtime.choices or name.partition("/")[0] in known
        if override.startswith("+") and not allowed and "${" + name not in used:
            nearest = suggest(name, known)
            raise UsageError(f"{override}: no part of attnlab has a setting {name!r}.{nearest}")


def _adapt_presets(config: DictConfig) -> None:
    """Remove settings that the chosen options lack: those of `debug`, which combines with all options.

    So are settings of an option whose `_target_` was replaced, if the new class does not take them.
    """
    overridden = {word.lstrip("+").partition("=")[0] for word in HydraConfig.get().overrides.task}
    choices = HydraConfig.get().runtime.choices
    debug = read_option("debug", choices["debug"]) if choices.get("debug") in options_of("debug") else {}
    for selected, option in choices.items():
        group, _, section = selected.partition("@")
        section = section or group
        node = OmegaConf.select(config, section) if section in SECTIONS else None
        if option not in options_of(group) or not isinstance(node, DictConfig):
            continue
        key, target = f"{section}._target_", read_option(group, option).get("_target_")
        if key in overridden:
            _remove_untaken(section, node, overridden)
        elif target not in (None, node.get("_target_")):
            if selected in overridden and group != "data":
                raise UsageError(
                    f"{selected}={option} has no effect: a preset, such as experiment, sets {key}"
                )
        else:
            elsewhere = frozenset().union(*(keys_of(group, other) for other in options_of(group)))
            for name in (elsewhere - keys_of(group, option)) & {*node} & {*debug.get(section, {})}:
                if f"{section}.{name}" not in overridden:
                    with read_write(node), open_dict(node):
                        del node[name]


def _remove_untaken(section: str, node: DictConfig, overridden: Collection[str]) -> None:
    """Remove settings that the class of a section does not take, unless the command line gives them."""
    with suppress(UserError), read_write(node), open_dict(node):  # the worker reports a failing import
        known = allowed_settings(section, {"_target_": node["_target_"]})
        for key in () if known.open else [*node]:
            if key not in (*known.types, *HYDRA_KEYS) and f"{section}.{key}" not in overridden:
                del node[key]


def _read_numbers(config: DictConfig) -> None:
    """Replace the text of a number or flag, as environment variables have, where all defaults are numbers."""
    for name, value in flatten(OmegaConf.to_container(config, resolve=True)).items():  # type: ignore[arg-type]
        if isinstance(value, str) and isinstance(number := read_text(value), bool | int | float):
            defaults = defaults_of(name)
            if defaults and all(isinstance(default, bool | int | float) for default in defaults):
                OmegaConf.update(config, name, number)


def apply_overrides(config: DictConfig, overrides: list[str]) -> DictConfig:
    """Return a copy of a configuration with `key=value` overrides applied."""
    changed = config.copy()
    with usage_errors():
        parsed = OverridesParser.create().parse_overrides(overrides)
    for override in sorted(parsed, key=lambda override: override.key_or_group not in REPLACEABLE):
        key = override.key_or_group
        if key in REPLACEABLE:  # before single settings, as in Hydra
            with usage_errors():
                changed[key] = compose_run([str(override.input_line)]).get(key)
            continue
        settings: Any = OmegaConf.to_container(changed, resolve=True)
        group = key.partition(".")[0]
        part = {group: settings[group]} if group in settings else {}  # imports only what receives it
        if key not in (known := [*flatten(settings), *known_settings(part, imported=True)]):
            raise UsageError(f"Unknown setting {key!r} in this run.{suggest(key, known)}")
        if override.is_delete() or override.is_add() or override.is_sweep_override():
            raise UsageError(f"{override.input_line}: give one value, as {key}=VALUE; a list is [A,B]")
        if isinstance(OmegaConf.select(changed, key), DictConfig):
            raise UsageError(f"{override.input_line}: {key} is a group; give its single settings, {key}.…=…")
        OmegaConf.update(changed, key, override.value(), force_add=True)
    return changed


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise Hydra's errors inside the block as `UsageError`."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise UsageError(explain(error)) from error


def explain(error: HydraException | OmegaConfBaseException | YAMLError) -> str:
    """Describe one of Hydra's errors in one line, with the nearest name if one was mistyped."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    unknown_option = re.search(r"Could not (?:find|load) '(\S+)/(\S+)'", text)
    if unknown_option is not None:
        group, name = unknown_option.groups()
        available = re.search(r"Available options in '\S+': (.*?) Config search path", text)
        options = available[1].split() if available else options_of(group)
        return f"Unknown {group} {name!r}.{suggest(name, options)} Options: {', '.join(options)}"
    missing = re.search(r"Interpolation key '(\S+)' not found(?: full_key: ((\w+)\S*))?", text)
    if missing is not None:
        key, place, section = missing.groups()
        option = f", or choose another option of {section}" if section != place else ""
        return f"{place or 'a setting'} refers to {key}, which does not exist: set one of them{option}"
    invalid = re.search(r" raised while resolving interpolation: (.*?)(?: full_key: |$)", text)
    if invalid is not None:
        return invalid[1]
    if isinstance(error, OverrideParseException):
        override = str(error.override).removeprefix("++")
        if "=" not in override:
            return f"{override}: not a setting; write KEY=VALUE"
        quoted = "{}='\"{}\"'".format(*override.partition("=")[::2])
        reference = re.search(r"(?<!\$)\{\w+\}", override)
        refer = f", or refer to a setting by ${reference[0]}" if reference else ""
        return f"{override}: cannot be parsed; quote a value with special characters: {quoted}{refer}"
    unknown_key = re.search(r"Could not override '([^'@]+)'", text)
    if unknown_key is None:
        return re.sub(r"^(.*) full_key: (\S+)( object_type=.*)?$", r"\2: \1", text)
    key = unknown_key[1]
    with initialize_conf():
        settings: Any = OmegaConf.to_container(compose("train"), resolve=False)
    near = suggest(key, known_settings(settings))
    return f"Unknown setting {key!r}.{near} attnlab train --cfg job shows all settings"
