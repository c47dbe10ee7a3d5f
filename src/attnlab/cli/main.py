"""The door: `attnlab COMMAND`. Composes configurations and starts workers; never trains.

Heavy imports come late, inside the commands that need them.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from attnlab import __version__
from attnlab.errors import UserError

HELP = f"""attnlab {__version__}: experiments with attention in recurrent sequence-to-sequence models

  attnlab train [OVERRIDE ...]              train a run, score it, draw what it looked at
  attnlab train -m [OVERRIDE=a,b ...]       the same for every combination of a sweep
  attnlab tune [OVERRIDE ...]               search settings, with a run for each trial
  attnlab evaluate RUN [OVERRIDE ...]       score a trained run, with other data or another search
  attnlab predict RUN [OPTION ...]          translate lines from standard input to standard output
  attnlab report PATH ... [-o FILE.html]    compare the runs under the paths: statistics, tables, one page
  attnlab bench [OVERRIDE ...]              time training steps and decoding

RUN is a run directory (outputs/NAME/VARIANT-seedN-HASH) or a checkpoint file.
OVERRIDE is a setting: attention=dot, seed=1, trainer.max_epochs=5, experiment=reverse_published.
attnlab COMMAND --help says more; attnlab train --cfg job shows every setting.
--traceback shows the stack trace of an error.
"""


def main() -> None:
    """Run the command line, and exit with 0 done, 1 failed, 2 wrong usage, 75 interrupted."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Run a command given as words; returns the exit code."""
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": train,
        "tune": tune,
        "evaluate": evaluate,
        "predict": predict,
        "report": report,
        "bench": bench,
    }
    traceback = "--traceback" in words or os.environ.get("HYDRA_FULL_ERROR") == "1"
    words = [word for word in words if word != "--traceback"]
    if traceback:
        os.environ["ATTNLAB_TRACEBACK"] = "1"
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    if words[0] not in commands:
        print(f"attnlab: no command {words[0]!r}: choose from {', '.join(commands)}", file=sys.stderr)
        return 2
    # As `python -m` does: a mechanism of one's own may lie in the current folder.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return commands[words[0]](words[1:])
    except UserError as error:
        if traceback:
            raise
        print(f"attnlab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def train(words: list[str]) -> int:
    """`attnlab train`: Hydra composes, a worker trains each run. A sweep ends in a table of its jobs."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from rich.console import Console

    from attnlab.config.compose import CONF, explain
    from attnlab.runs.launcher import INTERRUPTED
    from attnlab.sweeps.jobs import FailedRunError, Jobs

    jobs = Jobs()
    # Hydra's own way with errors is to print several lines and leave; this makes it raise them instead.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Launchers of ours have the names of their plugins' schemas, and are meant to be checked against them.
    warnings.filterwarnings("ignore", r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")
    sys.argv = ["attnlab train", *words]
    os.environ["ATTNLAB_COMMAND"] = " ".join(sys.argv)
    try:
        hydra.main(config_path=str(CONF), config_name="train", version_base="1.3")(jobs)()
    except (HydraException, OmegaConfBaseException) as error:
        if os.environ.get("ATTNLAB_TRACEBACK"):
            raise
        told = explain(error)
        if told.startswith("no setting") and {"-m", "--multirun"} & {*words}:
            told += "; a setting that only options swept over have is given as ++key=value"
        print(f"attnlab: {told}", file=sys.stderr)
        return 2
    except ValueError as error:
        if not str(error).startswith("Only one of --run"):
            raise
        print("attnlab: -m trains, and --cfg shows one run: leave one of them out", file=sys.stderr)
        return 2
    except FailedRunError as error:
        print(f"attnlab: {error}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        if not str(error).startswith("Unknown plugin class"):
            raise
        raise UserError("this launcher needs a package: pip install 'attnlab[slurm,ray]'") from error
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if jobs.sweeping and jobs.runs:
            jobs.print_table(Console(soft_wrap=True))
    if jobs.refused is not None:
        raise jobs.refused
    return jobs.exit_code()


def tune(words: list[str]) -> int:
    """`attnlab tune [overrides]`."""
    try:
        from attnlab.sweeps import hyperparameter_search as recipe
    except ModuleNotFoundError as error:
        if error.name != "optuna":
            raise
        raise UserError("attnlab tune needs Optuna: pip install 'attnlab[tune]'") from None

    return recipe.main(words)


def evaluate(words: list[str]) -> int:
    """`attnlab evaluate RUN [overrides]`."""
    from attnlab.cli import evaluate as recipe

    return recipe.main(words)


def predict(words: list[str]) -> int:
    """`attnlab predict RUN`."""
    from attnlab.cli import predict as recipe

    return recipe.main(words)


def report(words: list[str]) -> int:
    """`attnlab report PATH...`."""
    from attnlab.cli import report

    return report.main(words)


def bench(words: list[str]) -> int:
    """`attnlab bench [overrides]`."""
    from attnlab.cli import bench as recipe

    return recipe.main(words)
