"""Allow-list of the classes that a configuration read from a file may name.

Hydra calls any object that a `_target_` entry names. That is intended for the configurations that a user
composes, and dangerous for those in checkpoints and run directories of other people. `check` allows such a
configuration to name only `BUILDING_BLOCKS`, and what the user allows by name (`--trust cosine`). The object
that a name refers to is checked, not the name: `attnlab.data.corpus.os.system` is a function of `os`.
"""

import inspect
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import OmegaConf

from attnlab.errors import UserError

logging.getLogger("hydra.utils").addHandler(logging.NullHandler())  # get_object also logs what it raises

BUILDING_BLOCKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("attnlab.data.conala", "attnlab.data.datasets", "attnlab.data.tokenization.train"),
            *("attnlab.metrics.text", "attnlab.nn.attention.normalisers"),
            *("attnlab.training.learning_rate", "attnlab.training.loggers"),
            "attnlab.training.teacher_forcing",
        ),
        (),
    ),
    "attnlab.nn": ("torch.nn.Module",),
    "attnlab.decoding.reranking": ("attnlab.decoding.reranking.WordList",),
    "attnlab.training.losses": ("attnlab.training.losses.base.LossTerm",),
    "attnlab.training.callbacks": ("lightning.pytorch.Callback",),
    "torch.optim": ("torch.optim.Optimizer", "torch.optim.lr_scheduler.LRScheduler"),
    "torch.nn": ("torch.nn.Module",),
    "lightning": (
        *("lightning.pytorch.Trainer", "lightning.pytorch.Callback", "lightning.pytorch.loggers.Logger"),
        *("lightning.pytorch.profilers.Profiler", "lightning.pytorch.strategies.Strategy"),
        *("lightning.pytorch.accelerators.Accelerator", "lightning.pytorch.plugins.Precision"),
    ),
}
"""Modules and packages whose public classes and functions a configuration may name.

Of those with base classes, it may name the subclasses of these.
"""


def check(config: Any, source: Path | str, trust: Sequence[str] = ()) -> None:
    """Raise `UserError` for a configuration that names other classes than the building blocks.

    Args:
        config: a DictConfig, or the plain values of one.
        trust: modules, or dotted names of classes, that the user trusts.

    Raises:
        UserError: if the configuration names a class that is not allowed, or contains an interpolation, which
            could read the environment of the process that resolves it. Saved configurations are resolved.
    """
    values = OmegaConf.to_container(config, resolve=False) if OmegaConf.is_config(config) else config
    for key, value in walk(values):
        if isinstance(value, str) and "${" in value:
            raise UserError(
                f"{source} contains the interpolation {value!r} at {key}, which attnlab never saves: replace "
                "it by its value if you trust the file"
            )
        if key.rpartition(".")[2] == "_target_":
            _check_target(value, source, trust)


def targets(node: Any) -> list[str]:
    """Return the names of the classes and functions that a section and the sections in it name."""
    section = node if OmegaConf.is_config(node) else OmegaConf.create(node)  # which may contain sections
    values = OmegaConf.to_container(section, resolve=True)
    named = (value for key, value in walk(values) if key.rpartition(".")[2] == "_target_")
    return [name for name in named if isinstance(name, str)]


def _check_target(target: Any, source: Path | str, trust: Sequence[str]) -> None:
    if not isinstance(target, str):
        raise UserError(f"{source}: _target_ must be the dotted name of a class, not {target!r}")
    for name in trust:
        if _is_within(target, name) and _is_within(_definition(target, source), name):
            return
        if target == name and _resolve(target, source):
            return
    if not any(_is_within(target, package) for package in ("attnlab", "torch", "lightning")):
        raise UserError(
            f"{source} names the class {target}, which is not part of attnlab: add --trust "
            f"{target.split('.')[0]} if you trust it"
        )
    if not any(_is_within(target, package) for package in BUILDING_BLOCKS) or not _is_building_block(
        _resolve(target, source)
    ):
        raise UserError(
            f"{source} names {target}, which is not a model component, dataset, optimizer or Trainer part: "
            f"add --trust {target} if you trust it"
        )


def _is_building_block(resolved: Any) -> bool:
    """Return whether an object is one of `BUILDING_BLOCKS`, judged by where it is defined."""
    function = inspect.unwrap(resolved)  # of a cache
    if not (inspect.isclass(resolved) or inspect.isfunction(function)):
        return False
    if resolved.__qualname__.startswith("_") or "." in resolved.__qualname__:
        return False
    return any(
        _is_within(resolved.__module__, package)
        and (not bases or (inspect.isclass(resolved) and issubclass(resolved, tuple(map(get_object, bases)))))
        for package, bases in BUILDING_BLOCKS.items()
    )


def _definition(target: str, source: Path | str) -> str:
    resolved = _resolve(target, source)
    return f"{getattr(resolved, '__module__', '')}.{getattr(resolved, '__qualname__', '')}"


def _resolve(target: str, source: Path | str) -> Any:
    try:
        return get_object(target)
    except Exception as error:  # importing a module can raise any exception
        if _is_within(target, "attnlab"):
            raise UserError(
                f"{source} names {target}, which this version of attnlab does not have: use the version that "
                "trained it, or train it again"
            ) from error
        reason = " ".join(str(error).split())
        raise UserError(
            f"{source} names {target}, which cannot be imported: {reason}. Start the command in the folder "
            "of its module"
        ) from error


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def walk(node: Any, key: str = "config") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of every node, depth first."""
    yield key, node
    children = (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, (list, tuple)) else ()
    )
    for name, child in children:
        yield from walk(child, f"{key}.{name}")
