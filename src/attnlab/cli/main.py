"""Command-line entry point: `attnlab COMMAND`.

Dispatches to one module per command. Options are parsed before anything heavy is imported, so that `--help`
and usage errors take a fraction of a second.

Exit codes: 0 done, 1 failed, 2 usage error, 75 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import import_module

from attnlab import __version__
from attnlab.errors import INTERRUPTED, UsageError, UserError
from attnlab.files.printable import printable
from attnlab.jobs import interruption
from attnlab.training.environment import tokenize_in_one_thread

HELP = f"""attnlab {__version__}: experiments with attention in recurrent sequence-to-sequence models

  attnlab train [OVERRIDE ...]              train a model, evaluate it and plot its attention
  attnlab train -m [OVERRIDE=a,b ...]       train every combination of a sweep
  attnlab train --prepare [OVERRIDE ...]    create the run directory and print it, to train with torchrun
  attnlab tune [OVERRIDE ...]               search hyper-parameters; each trial is a training run
  attnlab evaluate RUN [OVERRIDE ...]       evaluate a trained run on other data or with another search
  attnlab predict RUN [OPTION ...]          translate standard input, line by line, to standard output
  attnlab score RUN [OPTION ...]            log-probabilities of given pairs from standard input
  attnlab average RUN [OPTION ...]          average the weights of a run's last checkpoints
  attnlab report PATH ... [-o FILE.html]    compare runs: statistics, tables and figures on one page
  attnlab serve RUN ...                     translate in a browser, and by a JSON interface
  attnlab bench [OVERRIDE ...]              measure the speed of training and decoding
  attnlab export RUN [OPTION ...]           export a trained run to ONNX, or to a page that runs in a browser
  attnlab completion                        print the script for tab completion in bash

RUN is a run directory (outputs/NAME/VARIANT-seedN-HASH) or a checkpoint file.
OVERRIDE is a setting: attention=dot, seed=1, trainer.max_epochs=5, experiment=reverse_published.
attnlab COMMAND --help shows the options of a command; attnlab train --cfg job shows every setting.
--traceback shows the stack trace of an error.
"""

COMMANDS = (
    *("train", "tune", "evaluate", "predict", "score", "average"),
    *("report", "serve", "bench", "export", "completion"),
)

UNEXPECTED = "unexpected error; --traceback shows where"


def main() -> None:
    """Run the command line and exit with its exit code."""
    code = run(sys.argv[1:])
    interruption.ignore()
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
        return _dispatch(arguments)
    except BrokenPipeError:
        return 0  # the reader of standard output, such as head, has read enough
    except Exception as error:
        if traceback:
            raise
        print(f"attnlab: {_explain(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _dispatch(arguments: list[str]) -> int:
    """Parse the arguments, import the module of the command, and run it; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    command, *arguments = arguments
    if command == "--version":
        print(__version__)
        return 0
    if command not in COMMANDS:
        raise UsageError(f"Unknown command {command!r}: choose from {', '.join(COMMANDS)}")
    with interruption.exit_at_once():
        from attnlab.cli import arguments as options

        parsed = options.parse(command, arguments)
        sys.path += getattr(parsed, "import_from", [])  # last, so that they replace no installed packages
        module = import_module(f"attnlab.cli.{command}")
    try:
        with interruption.interruptible():
            code: int = module.main(parsed)
    except KeyboardInterrupt:
        print(interruption.MESSAGE, file=sys.stderr)
        return INTERRUPTED
    return code


def _explain(error: Exception) -> str:
    """Describe an error in one line."""
    if isinstance(error, UserError):
        message = str(error)
    elif isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        message = f"not enough memory: {re.split('. Error code', str(error))[0]}"
    elif isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        message = f"{type(error).__name__}: {error} ({UNEXPECTED})"
    return printable(" ".join(message.splitlines()))


def _flush(code: int) -> int:
    """Write the buffered output, so that an error is one line; returns the exit code."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at exit
        if code == 0 and not isinstance(error, BrokenPipeError):
            print(f"attnlab: standard output: {error.strerror}", file=sys.stderr)
            return 1
    return code
