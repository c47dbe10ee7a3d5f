"""`attnlab completion`: print the script for tab completion in bash."""

import argparse
import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnlab.cli.main import command_parser, commands
from attnlab.files.writing import write_json

SCRIPT = """\
_attnlab() {
    local line="${COMP_LINE:0:COMP_POINT}" word completion
    word="${line##*[[:space:]]}"
    COMPREPLY=()
    while IFS= read -r completion; do
        COMPREPLY+=("${completion#"${word%"$2"}"}")  # bash completes only what follows = or :
    done < <("$1" completion --line "$line" 2> /dev/null)
}
complete -o default -o nospace -F _attnlab attnlab
"""
"""The function that bash calls. Where it finds nothing, bash completes names of files and folders."""

HYDRA_OPTIONS = ("--help", "--multirun", "--cfg", "--config-dir", "--traceback")
"""Options of the commands that pass their arguments to Hydra."""

CONFIG_DIR = ("--config-dir", "-cd")

KEPT = 50
"""Number of files in the cache: one for each choice of options."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--line", metavar="TEXT", help="print the completions of this command line, as the script does"
    )


def main(options: argparse.Namespace) -> int:
    """Print the script, or the completions of a command line; returns the exit code."""
    if options.line is None:
        print(SCRIPT, end="")
        return 0
    for completion in complete(options.line):
        print(completion)
    return 0


def complete(line: str) -> list[str]:
    """Return the words that the last word of a command line can become; it is empty after a blank.

    Those that end with a blank are complete.
    """
    *words, word = re.split(r"\s+", line.lstrip())
    if len(words) < 2:
        return _starting_with(word, [f"{command} " for command in commands()])
    _, command, *arguments = words
    if command not in commands():
        return []
    options = command_parser(command)
    if word.startswith("-"):
        flags = HYDRA_OPTIONS if options is None else options._option_string_actions
        return _starting_with(word, [f"{flag} " for flag in flags if flag.startswith("--")])
    if options is None or any(action.dest == "overrides" for action in options._actions):
        return _settings(word, arguments)
    return []


def _settings(word: str, arguments: Sequence[str]) -> list[str]:
    """Return the groups and settings that start with a word; after `=`, their options and values."""
    from attnlab.config.options import CONF, default_options

    if arguments and arguments[-1] in CONFIG_DIR:
        return []  # bash completes folders
    name = word.lstrip("+~")
    sign = word.removesuffix(name)
    folders = [CONF, *_config_dirs(arguments)]
    files = [path.relative_to(folder) for folder in folders for path in folder.glob("*/**/*.yaml")]
    groups = {path.parent.as_posix() for path in files} - {"hydra"} | {*default_options()}
    key, equals, value = name.partition("=")
    if equals and key in groups:
        choices = [path.stem for path in files if path.parent.as_posix() == key.partition("@")[0]]
    else:
        chosen = [
            argument
            for argument in arguments
            if "=" in argument
            and not argument.startswith("-")
            and (argument.lstrip("+~").partition("=")[0] in groups or "_target_=" in argument)
        ]
        known = _known_settings(chosen, folders)
        choices = known.get(key, [])
    if not equals:
        found = _starting_with(name, [f"{each}=" for each in (*groups, *known)])
        return [sign + start for start in dict.fromkeys(_next_part(key, len(name)) for key in found)]
    swept = value[: value.rfind(",") + 1]  # a sweep has several values
    return _starting_with(word, [f"{sign}{key}={swept}{choice}" for choice in choices])


def _known_settings(chosen: Sequence[str], folders: Sequence[Path]) -> dict[str, list[str]]:
    """Return the settings and the values to offer for each, from a cache where possible.

    Args:
        chosen: overrides that choose options or classes, on which the settings depend.
        folders: folders of option files.
    """
    package = Path(__file__).parents[1]
    patterns = ((package, "*.py"), *((folder, "*.yaml") for folder in folders))
    files = [path for folder, pattern in patterns for path in folder.rglob(pattern)]
    state = [*chosen, *((str(path), path.stat().st_mtime_ns) for path in sorted(files))]
    name = f"completion-{hashlib.sha256(json.dumps(state).encode()).hexdigest()[:16]}.json"
    path = None
    with suppress(OSError, ValueError, RuntimeError):  # the last one if there is no home folder
        path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "attnlab", name)
        cached: dict[str, list[str]] = json.loads(path.read_bytes())
        return cached
    known = _compose_settings(chosen, folders[1:])
    if path is not None:
        with suppress(OSError):
            write_json(path, known)
            for earlier in sorted(path.parent.glob("completion-*"), key=os.path.getmtime)[:-KEPT]:
                earlier.unlink()
    return known


def _compose_settings(chosen: Sequence[str], folders: Sequence[Path]) -> dict[str, list[str]]:
    """Return the settings and their values; of the default options if it cannot be composed."""
    from hydra import compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from attnlab.config.checks import known_settings
    from attnlab.config.compose import accept
    from attnlab.config.hydra_versions import initialize_conf
    from attnlab.files.run_identity import flatten

    paths = ",".join(f"file://{folder.absolute()}" for folder in folders)
    always = [f"hydra.searchpath=[{paths}]"] if folders else []
    with initialize_conf():
        try:
            config = compose("train", overrides=[*always, *accept([*chosen])])
        except (HydraException, OmegaConfBaseException):  # a sweep, or an unknown option
            config = compose("train", overrides=always)
    composed: Any = OmegaConf.to_container(config, resolve=False)
    present = {key: value for key, value in flatten(composed).items() if "._" not in f".{key}"}
    names = {*present, *known_settings(composed)}
    names -= {name for name in names if any(key.startswith(f"{name}.") for key in names)}
    return {name: _values(present.get(name)) for name in sorted(names)}


def _config_dirs(arguments: Sequence[str]) -> list[Path]:
    """Return the folders of further options, which `--config-dir` names."""
    words = [word for argument in arguments for word in argument.split("=", 1 if argument[0] == "-" else 0)]
    return [Path(folder).expanduser() for option, folder in pairwise(words) if option in CONFIG_DIR]


def _values(default: Any) -> list[str]:
    """Return the values to offer for a setting with this default: itself, and both of a flag."""
    if isinstance(default, bool):
        return ["true", "false"]
    plain = isinstance(default, (int, float, str)) and "$" not in str(default)
    return [str(default)] if plain else []


def _next_part(key: str, start: int) -> str:
    """Cut a key after its first dot from a position on."""
    dot = key.find(".", start)
    return key if dot == -1 else key[: dot + 1]


def _starting_with(start: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(start))
