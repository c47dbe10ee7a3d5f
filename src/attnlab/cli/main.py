"""Command-line entry point: `attnlab COMMAND`.

A command is a module of this package whose docstring begins with its name and a summary. It has
`main(options)`, which returns the exit code, and `add_arguments(parser)`, unless it passes its arguments on
to Hydra. Help, completion and the reference page find it by itself. The module imports nothing heavy at its
top, so that `--help` and usage errors take a fraction of a second: `main` imports what it needs, and
`IMPORTS` names the heavy modules.

Exit codes: 0 done, 1 failed, 2 usage error, 75 interrupted.
"""

import argparse
import ast
import io
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from attnlab import __version__
from attnlab.cli.arguments import Parser
from attnlab.config.options import config_dirs
from attnlab.errors import INTERRUPTED, UsageError, UserError
from attnlab.files.imports import faster_imports
from attnlab.files.terminal import escape_control_characters, replace_standard_streams
from attnlab.jobs import interruption
from attnlab.training.environment import keep_freed_memory, tokenize_in_one_thread

HELP = f"""attnlab {__version__}: experiments with attention in recurrent sequence-to-sequence models

  attnlab train [OVERRIDE ...]              train one run
  attnlab train -m [OVERRIDE=a,b ...]       train every combination of a sweep
  attnlab COMMAND --help                    show the options of a command
  attnlab train --cfg job                   show every setting

Commands:
{{commands}}

RUN is a run directory (outputs/NAME/VARIANT-seedN-HASH) or a checkpoint file.
OVERRIDE is a setting: attention=dot, seed=1, trainer.max_epochs=5, experiment=reverse_published.
--config-dir FOLDER adds the options of a folder, and the modules beside it.
--traceback shows the stack trace of an error.
"""

UNEXPECTED = "unexpected error; --traceback shows where"


def main() -> None:
    """Run the command line and exit with its exit code."""
    if sys.stdout is None:  # it was closed before the start
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.devnull, "w")), encoding="utf-8")
    replace_standard_streams(required=True)
    code = run(sys.argv[1:])
    interruption.ignore_signals()
    sys.exit(_flush(code))


def run(arguments: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    traceback = "--traceback" in arguments or os.environ.get("HYDRA_FULL_ERROR") == "1"
    arguments = [argument for argument in arguments if argument != "--traceback"]
    if os.environ.get("COLUMNS") == "0":  # rich would print nothing
        del os.environ["COLUMNS"]
    if traceback:
        os.environ["ATTNLAB_TRACEBACK"] = "1"
    tokenize_in_one_thread()
    try:
        arguments, folders = split_config_dirs(arguments)
        with config_dirs(folders):
            return _dispatch(arguments)
    except BrokenPipeError:
        return 0  # the reader of standard output, such as head, has read enough
    except Exception as error:
        if traceback:
            raise
        print(f"attnlab: {_explain(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def split_config_dirs(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without `--config-dir FOLDER`, and the folders."""
    others, folders = [], []
    words = iter(arguments)
    for word in words:
        option, equals, folder = word.partition("=")
        if option not in ("--config-dir", "-cd"):
            others.append(word)
        elif folder := folder if equals else next(words, ""):
            folders.append(folder)
        else:
            raise UsageError(f"{option} needs a folder of options: {option} FOLDER")
    return others, folders


@cache
def commands() -> dict[str, str]:
    """Return the summary of every command, without importing its module."""
    summaries = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_bytes())) or ""
        if match := re.match(r"`attnlab (\w+)`: (.*?)\.?$", docstring, re.MULTILINE):
            summaries[match[1]] = match[2]
    return summaries


def command_parser(command: str) -> Parser | None:
    """Return the parser of a command; None if it passes its arguments on to Hydra.

    Completion calls it, so a module without `add_arguments`, which imports Hydra, is not imported.
    """
    if "\ndef add_arguments(" not in Path(__file__).with_name(f"{command}.py").read_text(encoding="utf-8"):
        return None
    module = import_module(f"attnlab.cli.{command}")
    summary = str(module.__doc__).split(": ", 1)[1]
    description = summary[0].upper() + summary[1:]
    parser = Parser(prog=f"attnlab {command}", description=description, allow_abbrev=False)
    module.add_arguments(parser)
    return parser


def _dispatch(arguments: list[str]) -> int:
    """Parse the arguments, import the modules of the command, and run it; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(
            HELP.format(commands="\n".join(f"  {name:<12}{text}" for name, text in commands().items())),
            end="",
        )
        return 0
    command, *arguments = arguments
    if "--version" in (command, *arguments):
        print(__version__)
        return 0
    if command not in commands():
        raise UsageError(f"Unknown command {command!r}: choose from {', '.join(commands())}")
    with interruption.handle_signals(interruption.exit_at_once), faster_imports():
        options = argparse.Namespace(arguments=arguments)
        if parser := command_parser(command):
            parser.parse_intermixed_args(arguments, options)
        module = import_module(f"attnlab.cli.{command}")
        heavy = getattr(module, "IMPORTS", ())
        for name in heavy:
            import_module(name)
    if heavy:
        keep_freed_memory()
    try:
        with interruption.interruptible():
            code: int = module.main(options)
    except KeyboardInterrupt:
        print(interruption.MESSAGE, file=sys.stderr)
        return INTERRUPTED
    return code


def _explain(error: Exception) -> str:
    if isinstance(error, UserError):
        message = str(error)
    elif isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        message = f"not enough memory: {re.split('. Error code', str(error))[0]}"
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        message = f"{type(error).__name__}: {error} ({UNEXPECTED})"
    return escape_control_characters(" ".join(message.splitlines()))


def _flush(code: int) -> int:
    """Write the buffered output, so that an error is one line; returns the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at exit
        if code == 0 and not isinstance(error, BrokenPipeError):
            print(f"attnlab: {_explain(error)}", file=sys.stderr)
            return 1
    return code
