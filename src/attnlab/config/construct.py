"""Instantiating sections of a configuration, with the errors of their classes as `UserError`."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from attnlab.config.hydra_versions import instantiate
from attnlab.config.sections import SECTIONS
from attnlab.errors import UserError


def construct(node: Any, /, **arguments: Any) -> Any:
    """Instantiate a config node with further arguments."""
    if arguments:
        return constructor(node)(**arguments)
    with report_errors(_target(node)):
        return instantiate(node)


class constructor:  # noqa: N801 (used as a function)
    """Function that builds the target of a config node and raises its errors as `UserError`.

    Processes that are started by spawning receive it, so it can be pickled.
    """

    def __init__(self, node: Any) -> None:
        if isinstance(node, DictConfig):  # nested sections refer to settings elsewhere in the configuration
            node = OmegaConf.to_container(node, resolve=True)
        self.node = node
        with report_errors(_target(node)):
            self.function: Callable[..., Any] = instantiate({**node, "_partial_": True})

    def __call__(self, *parts: Any, **arguments: Any) -> Any:
        with report_errors(_target(self.node)):
            return self.function(*parts, **arguments)

    def __reduce__(self) -> tuple[type, tuple[Any]]:
        return constructor, (self.node,)


def accepts(node: Any, argument: str) -> bool:
    """Return whether the target of a config node takes an argument of this name."""
    with report_errors(_target(node)):
        function = instantiate({"_target_": _target(node), "_partial_": True})
    return argument in inspect.signature(function).parameters


def section(config: DictConfig, name: str) -> dict[str, Any]:
    """Return a section with the class or function that receives its settings as `_target_`."""
    return {"_target_": SECTIONS[name].target, **(OmegaConf.select(config, name) or {})}


@contextmanager
def report_errors(target: str) -> Iterator[None]:
    """Raise the errors of a target as `UserError`."""
    try:
        yield
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from None
        if isinstance(cause, ImportError):
            raise UserError(
                f"{target} cannot be imported: {' '.join(str(cause).split())}. A custom "
                "class must be in a module of the current folder, or be installed"
            ) from error
        if isinstance(cause, _constructor_errors()):
            raise UserError(f"{target}: {cause}") from error
        raise
    except _constructor_errors() as error:
        raise UserError(f"{target}: {error}") from error


def _constructor_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of constructors whose arguments do not fit.

    Lightning's own is among them once something imported Lightning, which takes seconds and which predicting
    does not need.
    """
    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")
    own = () if lightning is None else (lightning.MisconfigurationException,)
    return (TypeError, ValueError, OverflowError, *own)


def _target(node: Any) -> str:
    return str(node.get("_target_", node) if node else node)
