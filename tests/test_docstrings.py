"""Rules for docstrings that no linter has: what they contain, and which methods need one."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import attnlab
import attnlab.nn

pytestmark = pytest.mark.slow  # `make lint` runs them too

SOURCE = Path(attnlab.__file__).parent
WORDS = 4
"""Fewest words of a summary line."""

SHAPE = re.compile(
    r"\[(?:(?:≥ )?(?:\.\.\.|…|\w{1,6})(?:[ ,+-][^\[\]]*)?)?\]"  # [B, S, D], [N + 1], [..., S], []
    r"|\bany shape\b|\bscalars?\b"
    r"|\b(?:as in|as of|like|see) `"  # refers to the function that documents them
)
"""The shape of a tensor in a docstring, or a reference to another one."""


class Definition(NamedTuple):
    """A public class, function or module."""

    place: str  # file:line name
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    summary: str
    docstring: str


def definitions(path: Path, text: str) -> Iterator[Definition]:
    """Yield the public definitions of a module; those inside private ones are private."""

    def walk(node: ast.AST, prefix: str) -> Iterator[Definition]:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if child.name.startswith("_"):
                continue
            yield describe(child, f"{path}:{child.lineno} {prefix}{child.name}")
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")

    tree = ast.parse(text)
    yield describe(tree, f"{path}:1")
    yield from walk(tree, "")


def describe(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, place: str
) -> Definition:
    docstring = ast.get_docstring(node) or ""
    return Definition(place, node, " ".join(docstring.partition("\n\n")[0].split()), docstring)


def is_short(definition: Definition) -> bool:
    """Return whether a summary has too few words; a missing docstring is reported by ruff."""
    return bool(definition.docstring) and len(definition.summary.split()) < WORDS


def lacks_shapes(definition: Definition) -> bool:
    """Return whether a function takes or returns a tensor without giving a shape."""
    node = definition.node
    if not isinstance(node, ast.FunctionDef) or not definition.docstring:
        return False
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    annotations = [argument.annotation for argument in arguments] + [node.returns]
    used = {name.id for part in annotations if part for name in ast.walk(part) if isinstance(name, ast.Name)}
    return "Tensor" in used and not SHAPE.search(definition.docstring)


def undocumented_methods(trees: list[ast.Module]) -> list[str]:
    """Return the public methods without a docstring that override no documented or foreign method."""
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def bases(node: ast.ClassDef) -> list[str]:
        return [ast.unparse(base).partition("[")[0].split(".")[-1] for base in node.bases]

    def documents(name: str, method: str, seen: tuple[str, ...] = ()) -> bool:
        if name not in classes or name in seen:
            return True  # of another package, or a base with the name of its subclass
        node = classes[name]
        own = any(
            isinstance(part, ast.FunctionDef) and part.name == method and ast.get_docstring(part)
            for part in node.body
        )
        return own or any(documents(base, method, (*seen, name)) for base in bases(node))

    return [
        f"{node.name}.{part.name}"
        for node in classes.values()
        for part in node.body
        if isinstance(part, ast.FunctionDef)
        and not part.name.startswith("_")
        and not node.name.startswith("_")
        if not ast.get_docstring(part) and not any(documents(base, part.name) for base in bases(node))
    ]


def public() -> list[Definition]:
    return [
        definition
        for path in sorted(SOURCE.rglob("*.py"))
        for definition in definitions(path.relative_to(SOURCE), path.read_text(encoding="utf-8"))
    ]


def test_summaries_have_at_least_four_words() -> None:
    short = [f"{definition.place}: {definition.summary}" for definition in public() if is_short(definition)]
    assert not short, "\n".join(["too short:", *short])


def test_functions_of_tensors_document_shapes() -> None:
    missing = [definition.place for definition in public() if lacks_shapes(definition)]
    assert not missing, "\n".join(["no shape in the docstring:", *missing])


def test_public_methods_are_documented_where_they_are_first_defined() -> None:
    missing = undocumented_methods([ast.parse(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")])
    assert not missing
    text = "class A:\n  def f(self): pass\nclass B(A):\n  def f(self): pass\n  def g(self):\n    'G.'\n"
    text += "class C(B):\n  def g(self): pass\nclass D(Module):\n  def forward(self): pass\n"
    assert undocumented_methods([ast.parse(text)]) == ["A.f", "B.f"]


def argument_entries(docstring: str | None) -> set[str]:
    """Return the entries below `Args:`, each with its name and text, but not those with only a symbol."""
    _, _, text = inspect.cleandoc(docstring or "").partition("\nArgs:\n")
    entries = re.findall(r"^ {4}\w+: .+(?:\n {8}.+)*", text, re.MULTILINE)
    return {" ".join(entry.split()) for entry in entries if len(entry.split()) > 2}


def test_no_class_repeats_the_arguments_of_its_base() -> None:
    repeated = []
    for module in pkgutil.walk_packages(attnlab.nn.__path__, "attnlab.nn."):
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and kind.__module__ == module.name:
                bases = set().union(*(argument_entries(base.__doc__) for base in kind.__mro__[1:]))
                repeated += [f"{kind.__name__}: {entry}" for entry in argument_entries(kind.__doc__) & bases]
    assert not repeated
    assert argument_entries("A.\n\n    Args:\n        a: one\n            two\n        b: B\n") == {
        "a: one two"
    }


def test_both_rules_find_violations() -> None:
    text = '"""A module with two violations."""\ndef sums(x: Tensor) -> int:\n    """Sums."""\n'
    _, function = definitions(Path("module.py"), text)
    assert is_short(function)
    assert lacks_shapes(function)
    _, function = definitions(Path("module.py"), text.replace("Sums.", "Return the sum of x [B, S]."))
    assert not is_short(function)
    assert not lacks_shapes(function)
