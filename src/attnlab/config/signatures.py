"""The arguments of classes and functions, read from their source files without importing them.

The names in an annotation are looked up in the syntax tree of its module. So the types of settings are known
without torch. An annotation that cannot be evaluated, such as a class of torch, allows every value.
"""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, Required, get_args, get_origin

from attnlab.config.options import user_folders
from attnlab.settings import Component

UNTYPED = ("lightning", "optuna", "torch")
"""Packages of whose arguments only the names are read: see `attnlab.config.sections` for the types."""

LIGHT = (*sys.stdlib_module_names, "annotated_types", "typing_extensions")
"""Packages whose modules are imported to evaluate an annotation; those of all others are read."""

TARGET = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"
"""Dotted name of a class or function."""


class Signature(NamedTuple):
    """The arguments of a class or function by name."""

    arguments: dict[str, Any]  # their annotations, evaluated; Any if that is not possible
    open: bool  # whether it may have further ones: its source was not found, or it has untyped **kwargs


@cache
def signature(target: str) -> Signature:
    """Return the arguments of the class or function with this dotted name."""
    definition = _definition_of(target)
    return Signature({}, True) if definition is None else _signature(*definition)


def defined_name(target: str) -> str | None:
    """Return the dotted name by which a class or function is defined; None if no source file defines it."""
    definition = _definition_of(target)
    return None if definition is None else f"{definition[0].name}.{definition[1].name}"


class _Callable:
    """Stands for `Callable` in annotations: an object that a section of the configuration describes."""

    def __class_getitem__(cls, _: Any) -> Any:
        return Component


class _Module(dict[str, Any]):
    """The names of a module, each evaluated from the syntax tree when it is looked up."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(Callable=_Callable)
        self.name, self.is_package = name, path.name == "__init__.py"
        self.definitions: dict[str, ast.stmt] = {}
        for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
            for defined in _defined_names(node):
                self.definitions[defined] = node

    def __missing__(self, name: str) -> Any:
        node = self.definitions[name]
        if isinstance(node, ast.ImportFrom):
            source = self.source(node)
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            if source.partition(".")[0] in LIGHT or source == "attnlab.settings":
                return getattr(import_module(source), original)
            module = _module(source)
            if module is None:
                raise KeyError(name)
            return module[original]
        if isinstance(node, ast.ClassDef):
            return Component
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            return self.evaluate(node.value)
        raise KeyError(name)

    def source(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self.name.split(".")
        package = parents[: len(parents) - node.level + self.is_package]
        return ".".join([*package, *filter(None, [node.module])])

    def evaluate(self, expression: ast.expr) -> Any:
        """Evaluate an annotation. It can raise any exception."""
        return eval(compile(ast.Expression(expression), self.name, "eval"), {}, self)

    def type(self, annotation: ast.expr | None) -> Any:
        """Evaluate an annotation; Any if it cannot be evaluated."""
        if annotation is None or self.name.partition(".")[0] in UNTYPED:
            return Any
        try:
            kind = self.evaluate(annotation)
            return get_args(kind)[0] if get_origin(kind) in (Required, NotRequired) else kind
        except Exception:
            return Any


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those below `if TYPE_CHECKING`."""
    for node in tree.body:
        yield node
        if isinstance(node, ast.If):
            yield from node.body


def _defined_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


@cache
def _module(name: str) -> _Module | None:
    """Read a module; None if its source is not found."""
    top, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(top)  # imports nothing
    except (ImportError, ValueError):
        spec = None
    roots = [Path(root) for root in spec.submodule_search_locations or []] if spec else []
    files = [Path(spec.origin)] if spec and spec.origin and not parts else []
    for root in [*roots, Path.cwd() / top, *(folder.parent / top for folder in user_folders())]:
        path = root.joinpath(*parts)
        files += [path / "__init__.py", path.with_name(f"{path.name}.py")]
    try:
        return next((_Module(name, file) for file in files if file.suffix == ".py" and file.is_file()), None)
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None


def _definition_of(target: str) -> tuple[_Module, ast.ClassDef | ast.FunctionDef] | None:
    module, _, name = target.rpartition(".")
    return _definition(module, name) if re.fullmatch(TARGET, target) else None


def _definition(module: str, name: str) -> tuple[_Module, ast.ClassDef | ast.FunctionDef] | None:
    """Find a class or function, following the imports of packages that re-export it."""
    names = _module(module) if module else None
    node = names.definitions.get(name) if names is not None else None
    if names is None or node is None:
        return None
    if isinstance(node, ast.ImportFrom):
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        return _definition(names.source(node), original)
    return (names, node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else None


def _signature(module: _Module, node: ast.ClassDef | ast.FunctionDef) -> Signature:
    if isinstance(node, ast.FunctionDef):
        return _of_function(module, node)
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return _of_function(module, part)
    inherited = Signature({}, bool(node.bases))
    for base in reversed(node.bases):
        if isinstance(base, ast.Name) and base.id in ("TypedDict", "NamedTuple"):
            inherited = Signature({}, False)
        elif isinstance(base, ast.Name) and (definition := _definition(module.name, base.id)):
            found = _signature(*definition)
            inherited = Signature({**inherited.arguments, **found.arguments}, found.open)
    fields = {
        part.target.id: module.type(part.annotation)
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }
    return Signature({**inherited.arguments, **fields}, inherited.open)


def _of_function(module: _Module, node: ast.FunctionDef) -> Signature:
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    arguments = {each.arg: module.type(each.annotation) for each in given if each.arg != "self"}
    rest = node.args.kwarg
    if rest is None:
        return Signature(arguments, False)
    match rest.annotation:  # **rest: Unpack[Settings]
        case ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=name)):
            if definition := _definition(module.name, name):
                unpacked = _signature(*definition)
                return Signature({**arguments, **unpacked.arguments}, unpacked.open)
    return Signature(arguments, True)
