"""The option files of `conf/`, their names and keys. Imports neither torch nor Hydra."""

import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from attnlab.errors import UsageError
from attnlab.files.yaml import read_yaml

CONF = (Path(__file__).parents[1] / "conf").resolve()
"""Folder of the config groups. In a checkout it is a link to the folder at the top."""

CONFIG_DIR = "ATTNLAB_CONFIG_DIR"
"""Environment variable with the user's folders of options, separated like those of PATH.

`--config-dir` sets it, so that worker processes know the folders too. The modules beside such a folder can be
imported.
"""

PRESETS = ("experiment", "study", "debug")  # Groups whose options set keys of the whole configuration

PARTS = {"callbacks": "callbacks", "logger": "logger", "loss": "loss.terms"}
"""Groups of which several options can be chosen, and the section that has one section for each of them.

A setting chooses an option, too: `callbacks.averaging.decay=0.99` adds the callback with its other settings.
"""

UNNAMED = {*PRESETS, "attention", "data", "logger"}
"""Groups whose option is in the name of a run already, or does not change its results."""

REPLACEABLE = ("reranking", "grammar", "explain")
"""Groups whose option can be changed in a trained run, because no other setting depends on it."""

CHANGEABLE = (
    *("attention_override", "batching", "bleu", "data", "paths", "search", "seed", "trainer"),
    *REPLACEABLE,
)
"""Settings and groups that can be changed after training."""

SYNONYMS = Path(__file__).with_name("synonyms.yaml")  # Words of other toolkits

cached_yaml = cache(read_yaml)


def check_name(key: str) -> None:
    """Raise `UsageError` for a setting of other toolkits, with what to type."""
    if answer := cached_yaml(SYNONYMS)["answers"].get(key.rpartition(".")[2]):
        raise UsageError(f"{key} is no setting: {answer}")


def key_of(override: Any) -> str:
    """Return what one of Hydra's overrides changes, with its package: "tokenizer@target_tokenizer"."""
    return str(override.get_key_element()).lstrip("+~")


def as_value(value: Any) -> str:
    """Return a value as text that Hydra reads as this value, also a number of NumPy or a path."""
    if isinstance(value, str) and re.fullmatch(r"[\w./-]+", value):
        return value

    def plain(other: Any) -> Any:
        return other.item() if hasattr(other, "item") else str(other)

    return json.dumps(value, ensure_ascii=False, default=plain)


def user_folders() -> list[Path]:
    """Return the user's folders of options."""
    return [Path(folder) for folder in os.environ.get(CONFIG_DIR, "").split(os.pathsep) if folder]


@contextmanager
def config_dirs(folders: Sequence[str]) -> Iterator[None]:
    """Find options in these folders, and modules beside them, inside the block."""
    environment, path = os.environ.get(CONFIG_DIR), [*sys.path]
    added = [str(Path(folder).expanduser().absolute()) for folder in folders]
    if added:
        os.environ[CONFIG_DIR] = os.pathsep.join(added)
    sys.path += [str(folder.parent) for folder in user_folders()]  # last, so that they replace no packages
    try:
        check_user_folders()
        yield
    finally:
        sys.path[:] = path
        if added:
            os.environ.pop(CONFIG_DIR)
        if environment is not None:
            os.environ[CONFIG_DIR] = environment


def check_user_folders() -> None:
    """Raise `UsageError` at a user's folder that does not exist, or replaces an option of another one."""
    seen: dict[Path, Path] = {}
    for folder in user_folders():
        if not folder.is_dir():
            raise UsageError(f"--config-dir {folder}: no such folder")
        for path in sorted(folder.rglob("*.yaml")):
            if (CONF / (name := path.relative_to(folder))).exists():
                option = f"{name.parent.as_posix()}={name.stem}"
                raise UsageError(f"{path}: attnlab has an option {option} of its own. Rename the file")
            if (other := seen.setdefault(name, path)).resolve() != path.resolve():
                raise UsageError(f"{path}: {other} has the same name. Rename one of the files")


def _option_files(group: str) -> dict[str, Path]:
    """Return the files of a group's options by name."""
    folders = [CONF, *user_folders()]
    return {path.stem: path for folder in folders for path in (folder / group).glob("*.yaml")}


def default_options() -> dict[str, Any]:
    """Return the default option of each group: several in a list, None for none."""
    entries = [entry for entry in read_yaml(CONF / "train.yaml")["defaults"] if isinstance(entry, dict)]
    return {group: option for entry in entries for group, option in entry.items() if "override " not in group}


def options_of(group: str) -> list[str]:
    """Return the names of the options of a group."""
    return sorted(_option_files(group))


def suggest(name: str, names: Iterable[str]) -> str:
    """Return " Did you mean 'NEAREST'?", to append to a message, or "" if no name is similar."""
    known = {other: None for other in names if other != name and not other.rpartition(".")[2].startswith("_")}
    prefix, _, last = name.replace("/", ".").rpartition(".")
    settings: dict[str, list[str]] = cached_yaml(SYNONYMS)["settings"]
    synonyms = [setting for setting, words in settings.items() if last.lower() in words]
    beside = [f"{prefix}.{setting.rpartition('.')[2]}" for setting in synonyms]
    same = [other for other in (*beside, *synonyms) if other in known]
    same += [setting for setting in synonyms if re.search(r"\W", setting)]
    if not synonyms:
        same = [other for other in known if other.endswith((f".{last}", f"/{last}"))]
        same.sort(key=lambda other: (not other.startswith(f"{prefix}."), other.count(".")))
    near = same[:1] or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def top_level_keys() -> frozenset[str]:
    """Return the groups, and the settings outside of groups, of all files."""
    return _top_level_keys((CONF, *user_folders()))


@cache
def _top_level_keys(folders: tuple[Path, ...]) -> frozenset[str]:
    files = [path for folder in folders for group in PRESETS for path in (folder / group).glob("*.yaml")]
    settings = {str(key) for path in (CONF / "train.yaml", *files) for key in read_yaml(path)}
    return frozenset(
        settings | {path.name for folder in folders for path in folder.iterdir() if path.is_dir()}
    )


def keys_of(group: str, option: str) -> frozenset[str]:
    """Return the keys of an option, without those that start with an underscore."""
    content = read_option(group, option)
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


def defaults_of(name: str) -> list[Any]:
    """Return the values of a setting, except null and references, in `conf/train.yaml` and in all options."""
    group, *path = name.split(".")
    contents = [read_option(group, option) for option in options_of(group)]
    contents = [cached_yaml(CONF / "train.yaml"), *({group: each.get(group, each)} for each in contents)]
    values = [value_at(content, [group, *path]) for content in contents]
    return [value for value in values if value is not None and "${" not in str(value)]


def value_at(node: Any, path: Sequence[str]) -> Any:
    """Return a value in nested mappings, or None."""
    if not path:
        return node
    return value_at(node.get(path[0]), path[1:]) if isinstance(node, Mapping) else None


def read_option(group: str, option: str) -> dict[str, Any]:
    """Return the content of an option's file."""
    path = _option_files(group)[option]
    if not isinstance(content := cached_yaml(path), dict):
        raise UsageError(f"{path}: an option is a mapping of settings, KEY: VALUE")
    return content


def option_text(group: str, option: str) -> str:
    """Return the text of an option's file, with its comments."""
    return _option_files(group)[option].read_text(encoding="utf-8")
