"""Checks of the settings of a configuration.

The value of a setting is checked against the annotation of the argument that receives it. `check_settings`
imports the classes that the configuration names and checks everything, before any data is read. Before a run
directory exists, `check_plain` checks what needs no imports.
"""

import json
import re
import types
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from annotated_types import Ge, Gt, Le, Lt
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, TypeAdapter, ValidationError

from attnlab.config.by_pairs import values_by_pairs
from attnlab.config.construct import Arguments, arguments_of
from attnlab.config.options import (
    CONF,
    PARTS,
    check_name,
    default_options,
    keys_of,
    options_of,
    read_option,
    suggest,
    value_at,
)
from attnlab.config.sections import SECTIONS, section_at
from attnlab.errors import UsageError
from attnlab.files.terminal import escape_control_characters
from attnlab.files.yaml import read_yaml
from attnlab.metrics.registry import METRICS, metric

LONGEST_NAME = 150
"""Largest number of bytes of `name` and of `variant`, which are parts of the run directory's path."""

NAME = re.compile(r"(?![-~ ])[^/\\]+(?<![. ])")
"""Pattern of `name` and `variant`, whose characters must also be printable."""

LARGEST_INTEGER = 2**63 - 1  # Largest integer of torch

HYDRA_KEYS = ("_target_", "_partial_", "_convert_", "_recursive_", "_args_")
"""Keys of a section that Hydra reads."""

TARGET = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"  # Dotted name of a class or function

TRAINING_METRICS = ("train/loss_epoch",)  # train/loss exists at logged steps only


def check_settings(config: DictConfig) -> None:
    """Check all settings, and import the classes that receive them.

    Raises:
        UserError: if a class cannot be imported, a setting does not exist, or a value is not allowed.
    """
    check_plain(OmegaConf.to_container(config, resolve=True), config, imported=True)


def check_plain(settings: Any, config: DictConfig | None = None, *, imported: bool = False) -> None:
    """Check the plain values of a configuration, as `check_settings` does with `imported`."""
    for name, section in SECTIONS.items():
        if name and "." not in name and not section.optional:
            _check_section(name, settings.get(name))
    for name in ("name", "variant"):
        _check_name(name, settings.get(name))
    for path, keys in _required().items():
        for key in keys:
            if key not in (settings[path] if path else settings):
                name = f"{path}.{key}".lstrip(".")
                raise UsageError(f"{name} is missing: remove the override that deletes it")
    check_values(settings, config, imported=imported)
    _check_monitor("checkpoint", settings["checkpoint"])
    if stopping := (settings.get("callbacks") or {}).get("early_stopping"):
        _check_monitor("callbacks.early_stopping", {**settings["checkpoint"], **stopping})
    if settings["trainer"].get("max_epochs") == -1 and settings["trainer"].get("max_steps", -1) == -1:
        raise UsageError("trainer.max_epochs=-1: set trainer.max_steps to the number of steps to train")
    decoder, longest = settings["decoder"], settings["search"].get("max_length")
    places = decoder.get("max_positions", longest)
    places = min(values_by_pairs("decoder.max_positions", places).values(), default=places)
    if decoder.get("positions") == "learned" and longest is not None and places <= longest:
        raise UsageError(
            f"search.max_length={longest}: must be less than decoder.max_positions={places}, the number of "
            "learned positions"
        )


@cache
def _required() -> dict[str, list[str]]:
    """Return the settings that every configuration has, by section."""
    content = read_yaml(CONF / "train.yaml")
    required: dict[str, list[str]] = {"": [], "decoder": ["size"]}
    for group, option in default_options().items():
        shipped = read_option(group, option) if option in options_of(group) else {}
        if "_target_" in shipped.get(group, shipped):
            required.setdefault(group, []).append("_target_")
    del content["defaults"], content["hydra"]
    for key, value in content.items():
        if isinstance(value, dict):
            required.setdefault(key, []).extend(value)
        else:
            required[""].append(key)
    return required


def check_values(
    settings: Mapping[str, Any], config: DictConfig | None = None, *, imported: bool = True
) -> None:
    """Check that each setting exists, and its value by itself.

    A number or flag that is given as text, as environment variables are, is replaced in `config`. Settings
    outside all sections are allowed, since others may refer to them.
    """
    for path, node in _sections(settings):
        known = allowed_settings(path, node, imported=imported)
        for key, value in node.items():
            name = f"{path}.{key}".lstrip(".")
            if key == "_target_" and not (isinstance(value, str) and re.fullmatch(TARGET, value)):
                raise UsageError(f"{name}={show(value)}: must be the dotted name of a class or function")
            if name in SECTIONS:
                if value is not None or not SECTIONS[name].optional:
                    _check_section(name, value)
            elif key in known.types:
                each = [*values_by_pairs(name, value).values()] or [value]
                problem = next(filter(None, (find_problem(known.types[key], one) for one in each)), None)
                if problem is None:
                    continue
                typed = read_text(value)
                if config is None or find_problem(known.types[key], typed) is not None:
                    quoted = find_problem(known.types[key], show(value)) is None and value is not None
                    hint = f"; a text of this form needs quotes: {name}='\"{show(value)}\"'" if quoted else ""
                    raise UsageError(f"{name}={show(value)}: {problem}{hint}")
                OmegaConf.update(config, name, typed)
            elif _is_unknown(path, key, value, known):
                raise UsageError(_describe_unknown(name, settings, imported=imported))


def _is_unknown(path: str, key: str, value: Any, known: Arguments) -> bool:
    """Return whether a section has no setting of this name."""
    if not path or known.open or key in known.types or key in HYDRA_KEYS:
        return False
    is_part = value is None or (isinstance(value, dict) and "_target_" in value)  # or null: no such part
    return not (is_part and path in PARTS.values())


def _describe_unknown(name: str, settings: Mapping[str, Any], *, imported: bool) -> str:
    check_name(name)
    group, _, key = name.partition(".")
    others = [option for option in options_of(group) if key in keys_of(group, option)]
    choice = f" for this choice of {group}; {group}={others[0]} has it, ~{name} removes it" if others else ""
    return f"Unknown setting {name!r}{choice}.{suggest(name, known_settings(settings, imported=imported))}"


def known_settings(settings: Mapping[str, Any], *, imported: bool = False) -> list[str]:
    """Return the dotted names of the settings of the sections of a configuration, present or not."""
    names = [*filter(None, SECTIONS)]
    for path, node in _sections(settings):
        arguments = allowed_settings(path, node, imported=imported).types
        names += [f"{path}.{key}".lstrip(".") for key in {**node, **arguments} if key not in HYDRA_KEYS]
    for name, section in SECTIONS.items():
        if section.optional and "." not in name and name not in settings:
            names += [f"{name}.{key}" for key in allowed_settings(name, {}, imported=imported).types]
    for group, parent in PARTS.items():
        chosen = value_at(settings, parent.split("."))
        for option in options_of(group):
            if option not in (chosen or {}) and (content := read_option(group, option).get(option)):
                arguments = allowed_settings(f"{parent}.{option}", content, imported=imported).types
                names += [f"{parent}.{option}.{key}" for key in {**content, **arguments} if key[0] != "_"]
    return names


def _sections(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path of each section and its settings."""

    def walk(path: str, node: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
        if not isinstance(node, dict):
            return
        yield path, node
        for key, child in node.items():
            name = f"{path}.{key}".lstrip(".")
            if name in SECTIONS or (isinstance(child, dict) and "_target_" in child):
                yield from walk(name, child)

    yield from walk("", settings)


def allowed_settings(path: str, node: Mapping[str, Any], *, imported: bool = True) -> Arguments:
    """Return the settings that a section may have, with their types."""
    section = section_at(path)
    target = node.get("_target_", section.target)
    declared = {} if section.declared is None else get_type_hints(section.declared, include_extras=True)
    importable = target is None or (isinstance(target, str) and re.fullmatch(TARGET, target))
    if not imported or not importable:
        return Arguments(declared, open=target is not None or bool(section.beside))
    types, further = ({}, False) if target is None else arguments_of(target)
    if target is not None:  # narrower types of its arguments
        declared = {name: kind for name, kind in declared.items() if name in types or further}
    beside = [arguments_of(function).types for function in section.beside]
    types = {name: kind for each in (types, *beside, declared) for name, kind in each.items()}
    return Arguments({name: kind for name, kind in types.items() if name not in section.supplied}, further)


def read_text(value: Any) -> Any:
    """Return the number, flag or null that a text stands for; any other value as it is."""
    try:
        if not isinstance(value, str) or not value.strip():
            return value
        read: Any = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={value}"]))["value"]  # type: ignore[index,call-overload]
    except yaml.YAMLError:
        return value
    # Not a section, which could name a class that `trust.check` has not seen
    return read if isinstance(read, bool | int | float | None) else value


def find_problem(kind: Any, value: Any) -> str | None:
    """Return why a type does not allow a value, such as "must be a number > 0"; None if it does."""
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        return f"must have at most {len(str(LARGEST_INTEGER)) - 1} digits"
    try:
        named = {str(key): each for key, each in value.items()} if isinstance(value, Mapping) else value
        _adapter(kind).validate_python(named)  # a name can look like a number: {2016: FILE}
    except ValidationError:
        return f"must be {describe(kind)}"
    return None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))


def describe(kind: Any) -> str:
    """Describe the values that a type allows, such as "a whole number ≥ 1 or null"."""
    *others, last = _alternatives(kind)
    return f"{', '.join(others)} or {last}" if others else last


def _alternatives(kind: Any) -> list[str]:
    if get_origin(kind) is Annotated:
        base, *metadata = get_args(kind)
        text = next((part for part in metadata if isinstance(part, str)), None)
        return [text] if text else [_number(base, metadata)]
    if get_origin(kind) in (Union, types.UnionType):
        return [text for part in get_args(kind) for text in _alternatives(part)]
    if get_origin(kind) is Literal:
        return [show(option) for option in get_args(kind)]
    plain = {bool: ["true", "false"], type(None): ["null"], str: ["text"]}
    if kind in plain:
        return plain[kind]
    if kind in (int, float):
        return [_number(kind, [])]
    return ["a list"] if "Sequence" in str(kind) else ["a section of settings"]


def _number(base: Any, metadata: list[Any]) -> str:
    low = next((bound for bound in metadata if isinstance(bound, Ge | Gt)), None)
    high = next((bound for bound in metadata if isinstance(bound, Le | Lt)), None)
    kind = "a whole number" if base is int else "a number"
    if low is None:
        return kind
    above = f"[{low.ge:g}" if isinstance(low, Ge) else f"({low.gt:g}"
    if high is None:
        return f"{kind} {'≥' if isinstance(low, Ge) else '>'} {above[1:]}"
    return f"{kind} in {above}, {f'{high.le}]' if isinstance(high, Le) else f'{high.lt})'}"


def show(value: Any) -> str:
    """Format a value as it is typed in an override: null, true, [1, 2]."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return escape_control_characters(text)


def _check_section(name: str, value: Any) -> None:
    if isinstance(value, dict):
        return
    override = f"{name}={show(value)}"
    if options := options_of(name):
        raise UsageError(f"{override}: choose an option, such as {name}={options[0]}")
    raise UsageError(f"{override}: {name} is a section; give its single settings, {name}.…=…")


def _check_name(key: str, value: Any) -> None:
    text = "" if value is None else str(value)
    if not NAME.fullmatch(text) or not text.isprintable() or len(text.encode()) > LONGEST_NAME:
        raise UsageError(
            f"{key}={text[:20]!r}: must be the name of one folder, with at most {LONGEST_NAME} bytes, "
            "without / and \\, not starting with -, ~ or a space, and not ending with a space or a dot; "
            "paths.output sets where it is"
        )


def known_metrics() -> list[str]:
    """Return the names of all metrics that a training run can log and monitor."""
    logged = [
        name if info.kind == "attention" else f"val/{name}"
        for name, info in METRICS.items()
        if info.kind in ("token", "text", "attention")
    ]
    return [*logged, *TRAINING_METRICS]


def _check_monitor(section: str, settings: Mapping[str, Any]) -> None:
    """Check the monitored metric of a section, and that its mode fits the metric."""
    monitor, metrics = settings["monitor"], known_metrics()
    override = f"{section}.monitor={show(monitor)}"
    if monitor not in metrics:
        near = suggest(str(monitor), metrics)
        raise UsageError(f"{override}: no such metric.{near} Metrics: {', '.join(metrics)}")
    mode = {"higher": "max", "lower": "min", None: settings["mode"]}[metric(monitor).direction]
    if settings["mode"] != mode:
        raise UsageError(
            f"{override} with {section}.mode={settings['mode']} would prefer the worst checkpoint: set "
            f"{section}.mode={mode}"
        )
