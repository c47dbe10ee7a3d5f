"""`attnlab completion`: print the script for tab completion in bash."""

import argparse
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from attnlab.cli.main import command_parser, commands, split_config_dirs
from attnlab.config.options import config_dirs

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--line", metavar="TEXT", help="print the completions of this command line, as the script does"
    )


def main(options: argparse.Namespace) -> int:
    """Print the script, or the completions of a command line; returns the exit code."""
    for completion in [SCRIPT] if options.line is None else complete(options.line):
        print(completion)
    return 0


def complete(line: str) -> list[str]:
    """Return the words that the last word of a command line can become."""
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
        return _overrides([*arguments, word])
    return []


def _overrides(words: Sequence[str]) -> list[str]:
    """Return what Hydra offers for the last word: groups, options and settings."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from hydra.plugins.completion_plugin import DefaultCompletionPlugin

    from attnlab.config.hydra_versions import initialize_conf, searchpath

    words, folders = split_config_dirs(words)
    overrides = [word for word in words if not word.startswith("-")]
    with config_dirs(folders), initialize_conf(), suppress(HydraException):  # the other words are not valid
        plugin = DefaultCompletionPlugin(GlobalHydra.instance().config_loader())
        return plugin._query("train", " ".join([*searchpath(), *overrides]))
    return []


def _starting_with(start: str, words: Iterable[str]) -> list[str]:
    return sorted(word for word in words if word.startswith(start))
