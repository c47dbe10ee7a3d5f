"""Whether runs can be built at all: `python -m attnlab.sweeps.preflight RUN_DIR...`.

Prints a JSON object with the reason of each directory whose run cannot. It reads no data and trains nothing:
a network is built without its numbers (on torch's meta device), for a vocabulary of a few made-up words.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from attnlab.config.build import build_network, construct
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.runs.directory import Run
from attnlab.runs.launcher import die_with_parent

BUILT = ("encoder", "bridge", "attention", "normaliser", "decoder", "readout", "optimizer")
"""The groups that are built here; of all others only the names of their arguments are looked at."""


def main(directories: list[str]) -> None:
    """Print the reason of each directory whose run cannot be built."""
    die_with_parent()
    reasons = {directory: why_not(Run(Path(directory)).read_config()) for directory in directories}
    print(json.dumps({directory: reason for directory, reason in reasons.items() if reason is not None}))


def why_not(config: DictConfig) -> str | None:
    """Why a configuration cannot be built, or None: an argument that nobody takes, sizes that do not fit.

    What only the data or the machine can show is left for the run itself to find.
    """
    words = symbols(["3 4"], count=2)
    settings = OmegaConf.to_container(config, resolve=True)
    assert isinstance(settings, dict)
    try:
        for node in _targets({key: value for key, value in settings.items() if key not in BUILT}):
            _check_arguments(node)
        with torch.device("meta"):
            network = build_network(config, Vocabularies(words, words))
            construct(config.optimizer, params=network.parameters())
    except UserError as error:
        return str(error)
    except Exception:
        return None  # not known to be the run's fault: a part of one's own may not build without its numbers
    return None


def _targets(node: Any) -> Iterator[dict[str, Any]]:
    """Every node of a configuration that names what it makes."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield node
        for child in node.values():
            yield from _targets(child)


def _check_arguments(node: dict[str, Any]) -> None:
    """Raises `UserError` where a target does not take an argument it is given."""
    arguments = {key: value for key, value in node.items() if not key.startswith("_")}
    try:
        inspect.signature(get_object(node["_target_"])).bind_partial(**arguments)
    except TypeError as error:
        raise UserError(f"{node['_target_']}: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
