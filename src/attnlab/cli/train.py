"""`attnlab train`: train a model, evaluate it and plot its attention.

Hydra composes the configurations, and a worker process trains each run.
"""

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins

from attnlab.config import hydra_versions
from attnlab.config.compose import accept, check_overrides, check_shown, check_sweeps, usage_errors
from attnlab.config.options import key_of, user_folders
from attnlab.errors import INTERRUPTED, UsageError, UserError
from attnlab.jobs.grid import split_zip
from attnlab.jobs.train_task import TrainTask
from attnlab.jobs.worker_process import import_from_current_folder

PREPARE = "--prepare"  # Option that creates the run directory and prints it, without training


def main(parsed: argparse.Namespace) -> int:
    """Train one run, or all runs of a sweep, which ends with a table of its jobs; returns the exit code."""
    arguments = _settings_without_dashes([word for word in parsed.arguments if word != PREPARE])
    zips = [word for word in arguments if split_zip(word) is not None]
    task = TrainTask(prepare_only=PREPARE in parsed.arguments, zips=zips)
    if "TORCHELASTIC_RUN_ID" in os.environ and not task.prepare_only:
        raise UsageError(
            f"torchrun starts workers, not attnlab train: create the run directory with attnlab train "
            f"{PREPARE}, then run torchrun … -m attnlab.jobs.worker RUN_DIR"
        )
    if task.prepare_only and {"-m", "--multirun"} & {*arguments}:
        raise UsageError(f"{PREPARE} prints the directory of one run: remove -m")
    sys.argv = ["attnlab train", *arguments]
    folders = [f"--config-dir={folder}" for folder in user_folders()]
    os.environ["ATTNLAB_COMMAND"] = shlex.join(["attnlab", "train", *folders, *arguments])
    try:
        with _one_line_errors():
            _compose_and_train(arguments, task)
    except KeyboardInterrupt:
        task.outcome = INTERRUPTED
    finally:
        code = task.ledger.end()
    if isinstance(task.outcome, UserError):
        raise task.outcome
    return task.outcome or code


def _compose_and_train(arguments: list[str], task: TrainTask) -> None:
    """Let Hydra compose the configurations and call `task` with each."""
    # Hydra would print several lines and exit; with this variable it raises its errors instead.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # conf/hydra/launcher files have the names of their plugins' schemas, against which they are checked.
    warnings.filterwarnings("ignore", r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")
    options = _check_options(arguments)
    plain = [word for word in options.overrides if word not in task.zips]
    overrides = [*plain, *(override for word in task.zips for override in split_zip(word) or [])]
    check_overrides(overrides)
    if options.multirun:
        parsed = OverridesParser.create().parse_overrides(overrides)
        check_sweeps(parsed)
        task.swept = {key_of(override) for override in parsed if override.is_sweep_override()}
    if options.cfg in ("job", "all") and not options.multirun and not task.zips:
        check_shown(overrides)
    # Hydra's parser needs the options before the overrides
    sys.argv[1:] = [word for word in arguments if word not in options.overrides]
    sys.argv += accept(plain)
    Plugins.instance()  # finds plug-ins before the current folder, for callbacks of Hydra, may contain some
    import_from_current_folder()
    hydra_versions.main(task)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Raise the errors of Hydra and of launchers as `UserError`."""
    try:
        with usage_errors():
            yield
    except UserError as error:
        if "'hydra/sweeper/optuna' is validated" in str(error):
            message = "hydra-optuna-sweeper has the same name: pip uninstall hydra-optuna-sweeper"
            raise UsageError(message) from error
        raise
    except Exception as error:
        if str(error).startswith("Only one of --run"):
            message = "-m trains a sweep and --cfg shows one run: remove one of them"
            raise UsageError(message) from error
        if str(error).startswith("Unknown plugin class"):
            message = "This launcher is not installed: pip install 'attnlab[slurm]' or 'attnlab[ray]'"
            raise UsageError(message) from error
        if type(error).__module__.partition(".")[0] in ("submitit", "ray"):
            raise UserError(f"the launcher failed: {' '.join(str(error).split())}") from error
        raise


def _settings_without_dashes(arguments: list[str]) -> list[str]:
    """Return the arguments with settings such as `--seed=1`, the form of `wandb agent`, as overrides."""
    _, unknown = _options_parser().parse_known_intermixed_args(arguments)
    settings = {word for word in unknown if word.startswith("--") and "=" in word}
    return [word.removeprefix("--") if word in settings else word for word in arguments]


def _check_options(arguments: list[str]) -> argparse.Namespace:
    parser = _options_parser()
    options = parser.parse_intermixed_args(arguments)
    if options.resolve and not options.cfg and not options.help:
        parser.error("--resolve shows resolved values in the output of --cfg: add --cfg job")
    for name in ("config_path", "config_name"):
        if getattr(options, name):
            parser.error(
                f"--{name.replace('_', '-')} is Hydra's: --config-dir FOLDER adds the options of a folder"
            )
    return options


def _options_parser() -> argparse.ArgumentParser:
    """Return Hydra's parser, whose errors are one line."""

    def fail(message: str) -> NoReturn:
        raise UsageError(f"{message} (attnlab train --help shows the options)")

    parser = hydra_versions.get_args_parser()
    parser.error = fail  # type: ignore[method-assign]
    return parser
