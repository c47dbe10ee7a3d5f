"""Hydra 1.3 with OmegaConf 2.3, and Hydra 1.4 with OmegaConf 2.4: the calls that differ. Imports no torch."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import hydra
import hydra.utils
from hydra import initialize_config_dir
from hydra._internal.utils import get_args_parser as get_args_parser
from omegaconf import OmegaConf

from attnlab.config.options import CONF, user_folders
from attnlab.config.trust import targets

IS_1_4 = hasattr(hydra.utils, "execution_whitelist")
"""True if Hydra checks the targets of `instantiate` against a list, as 1.4 does."""

VERSION_BASE: dict[str, str] = {} if IS_1_4 else {"version_base": "1.3"}
"""Argument of Hydra 1.3 that chooses its current behaviour; 1.4 has no other, and deprecates the argument."""

register_resolver: Callable[[str, Callable[..., Any]], None] = getattr(
    OmegaConf, "register_resolver" if IS_1_4 else "register_new_resolver"
)


def initialize_conf() -> initialize_config_dir:
    """Return a context in which `hydra.compose` reads `conf/`."""
    return initialize_config_dir(str(CONF), **VERSION_BASE)


def searchpath(start: int = 0) -> list[str]:
    """Return the override with which Hydra finds the options in the user's folders, if there are any."""
    folders = ",".join(f"'file://{folder.absolute()}'" for folder in user_folders()[start:])
    return [f"hydra.searchpath=[{folders}]"] if folders else []


def main(task: Callable[..., Any]) -> None:
    """Compose the configurations that `sys.argv` describes, and call `task` with each."""
    for folder in user_folders()[:1]:  # only its option --config-dir extends glob(*), but takes one folder
        sys.argv[1:1] = ["--config-dir", str(folder.absolute())]
    sys.argv += searchpath(start=1)
    hydra.main(config_path=str(CONF), config_name="train", **VERSION_BASE)(task)()


def instantiate(node: Any) -> Any:
    """Return what the `_target_` of a section builds.

    Hydra 1.4 gets the targets that the section names as its allow-list, and calls nothing else: no target may
    return a function that is called. `attnlab.config.trust` decides which targets a file may name.
    """
    if not IS_1_4:
        return hydra.utils.instantiate(node)
    allowed = [name for target in targets(node) for name in (target, *_definition(target))]
    return hydra.utils.instantiate(node, _execution_whitelist_=allowed)


def _definition(target: str) -> Iterator[str]:
    """Yield the name under which a target is defined; Hydra reports the error if it cannot be imported."""
    with suppress(Exception):
        found = hydra.utils.get_object(target)
        yield f"{found.__module__}.{found.__qualname__}"
