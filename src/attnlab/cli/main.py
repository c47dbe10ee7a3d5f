"""Command-line entry point: `attnlab COMMAND`.

Dispatches to one module per command. Options are parsed before anything heavy is imported, so that `--help`
and usage errors take a fraction of a second.

Exit codes: 0 done, 1 failed, 2 usage error, 75 interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from attnlab import __version__
from attnlab.cli import options
from attnlab.errors import UserError

HELP = f"""attnlab {__version__}: experiments with attention in recurrent sequence-to-sequence models

  attnlab train [OVERRIDE ...]              train a model, evaluate it and plot its attention
  attnlab train -m [OVERRIDE=a,b ...]       train every combination of a sweep
  attnlab tune [OVERRIDE ...]               search hyper-parameters; each trial is a training run
  attnlab evaluate RUN [OVERRIDE ...]       evaluate a trained run on other data or with another search
  attnlab predict RUN [OPTION ...]          translate standard input, line by line, to standard output
  attnlab report PATH ... [-o FILE.html]    compare runs: statistics, tables and figures on one page
  attnlab bench [OVERRIDE ...]              measure the speed of training and decoding

RUN is a run directory (outputs/NAME/VARIANT-seedN-HASH) or a checkpoint file.
OVERRIDE is a setting: attention=dot, seed=1, trainer.max_epochs=5, experiment=reverse_published.
attnlab COMMAND --help shows the options of a command; attnlab train --cfg job shows every setting.
--traceback shows the stack trace of an error.
"""

COMMANDS = ("train", "tune", "evaluate", "predict", "report", "bench")


def main() -> None:
    """Run the command line and exit with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command with these arguments; returns the exit code."""
    traceback = "--traceback" in arguments or os.environ.get("HYDRA_FULL_ERROR") == "1"
    arguments = [argument for argument in arguments if argument != "--traceback"]
    if traceback:
        os.environ["ATTNLAB_TRACEBACK"] = "1"
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    command, *arguments = arguments
    if command == "--version":
        print(__version__)
        return 0
    if command not in COMMANDS:
        print(f"attnlab: Unknown command {command!r}: choose from {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    parsed = options.parse(command, arguments)
    try:
        code: int = import_module(f"attnlab.cli.{command}").main(parsed)
    except UserError as error:
        if traceback:
            raise
        print(f"attnlab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0
    return code
