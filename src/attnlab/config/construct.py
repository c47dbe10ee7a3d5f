"""Instantiating sections of a configuration, with the errors of their classes as `UserError`."""

import collections.abc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, NotRequired, Required, Union, Unpack, get_args, get_origin, get_type_hints

from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf

from attnlab.config.hydra_versions import instantiate
from attnlab.config.sections import SECTIONS
from attnlab.errors import UserError
from attnlab.settings import Component

PLAIN = (bool, int, float, str, NoneType)  # Classes whose objects are plain values


def construct(node: Any, /, **arguments: Any) -> Any:
    """Instantiate a config node with further arguments."""
    if arguments:
        return constructor(node)(**arguments)
    with report_errors(_target(node)):
        return instantiate(node)


class constructor:  # noqa: N801 (used as a function)
    """Function that builds the target of a config node and raises its errors as `UserError`."""

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
    return argument in arguments_of(_target(node)).types


def accepted(node: Any, **arguments: Any) -> dict[str, Any]:
    """Return those of the arguments that the target of a config node takes."""
    return {name: value for name, value in arguments.items() if accepts(node, name)}


class Arguments(NamedTuple):
    """The arguments of a class or function."""

    types: dict[str, Any]  # the values that each one allows in a configuration; Any if that is unknown
    open: bool  # whether it may have further ones


@cache
def arguments_of(target: str) -> Arguments:
    """Import a class or function and return its arguments; raise `UserError` if that is not possible."""
    with report_errors(target):
        function = instantiate({"_target_": target, "_partial_": True}).func
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError):  # an annotation that only type checkers evaluate
        parameters = inspect.signature(function).parameters
    except ValueError:  # a function of C
        return Arguments({}, open=True)
    types: dict[str, Any] = {}
    further = False
    for name, parameter in parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            types[name] = _plain(parameter.annotation)
        elif get_origin(parameter.annotation) is Unpack:
            (settings,) = get_args(parameter.annotation)
            hints = get_type_hints(settings, include_extras=True)
            types |= {key: _plain(kind) for key, kind in hints.items()}
        else:
            further = True
    return Arguments(types, further)


def _plain(annotation: Any) -> Any:
    """Return the type of the value in a configuration: for a class or a function, a section."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Required, NotRequired):
        return _plain(parts[0])
    if origin in (Union, UnionType):
        return Union[tuple(_plain(part) for part in parts)]  # noqa: UP007
    if annotation in (inspect.Parameter.empty, Any) or isinstance(annotation, str) or origin is tuple:
        return Any  # a tuple is a list in a configuration
    is_class = isinstance(annotation, type) and origin is None
    if origin is collections.abc.Callable or (is_class and annotation not in PLAIN):
        return Component
    return annotation


def section(config: DictConfig, name: str) -> dict[str, Any]:
    """Return the settings that the class or function of a section takes, with its name as `_target_`."""
    settings: Any = OmegaConf.select(config, name)
    if isinstance(settings, DictConfig):
        settings = OmegaConf.to_container(settings, resolve=True)
    others = {key for function in SECTIONS[name].beside for key in arguments_of(function).types}
    taken = {key: value for key, value in (settings or {}).items() if key not in others}
    return {"_target_": SECTIONS[name].target, **taken}


def beside(config: DictConfig, name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Return the settings of a section that a function beside its target takes."""
    parameters = inspect.signature(function).parameters
    return {key: value for key, value in config[name].items() if key in parameters}


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
    return (ImportError, TypeError, ValueError, OverflowError, *own)


def _target(node: Any) -> str:
    return str(node.get("_target_", node) if node else node)
