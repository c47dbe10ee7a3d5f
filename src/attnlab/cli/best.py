"""`attnlab best`: print the command of the best run of a Weights & Biases sweep.

The best run is that with the best value of the metric in the sweep's configuration.
"""

import argparse
import shlex
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from attnlab.config.options import as_value
from attnlab.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sweep", metavar="ENTITY/PROJECT/SWEEP", help="path of the sweep, as for wandb agent")


def main(options: argparse.Namespace) -> int:
    import wandb

    try:
        api: Any = wandb.Api()  # not typed
        sweep = api.sweep(options.sweep)
        best = sweep.best_run()
    except Exception as error:  # wandb raises its own, those of requests, ValueError and TypeError
        raise UserError(f"{options.sweep} cannot be read from Weights & Biases: {error}") from error
    if best is None:
        raise UserError(f"{options.sweep} has no runs yet")
    metric = sweep.config.get("metric", {}).get("name")
    print(
        f"best  {best.name}" if metric is None else f"best  {best.name}  {metric} {best.summary.get(metric)}"
    )
    print(f"attnlab train {shlex.join(_overrides(sweep.config, best.config))}")
    return 0


def _overrides(sweep: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """Return the overrides of a run: those in the command of its sweep, and its values of the parameters."""
    command = sweep.get("command", [])
    folders = [word for pair in pairwise(command) if pair[0] == "--config-dir" for word in pair]
    fixed = [word for word in command if "=" in word and "${" not in word and word not in folders]
    values = {name: settings[name] for name in sweep["parameters"] if name in settings}
    return [*folders, *fixed, *(f"{name}={as_value(value)}" for name, value in values.items())]
