"""Draw mutations of all packages at random.

A mutation changes one comparison, sign, number, condition, connective or call on one line of code that a
program runs: no docstrings, comments, annotations, texts, log lines, or options of data classes. Every module
gets its turn before another one gets its second, so that small packages are drawn as often as large ones.
"""

import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "attnlab"
TESTS = ROOT / "tests"
COMPUTING = ("data", "decoding", "explain", "fast", "metrics", "nn", "report", "training")
SWAPPED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (" is ", " is not "),
    ast.IsNot: (" is not ", " is "),
    ast.In: (" in ", " not in "),
    ast.NotIn: (" not in ", " in "),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.And: (" and ", " or "),
    ast.Or: (" or ", " and "),
}
"""Source text of each operator, and the text that replaces it."""

DANGEROUS = re.compile(r"\b(kill|killpg|terminate|rmtree|unlink|rename)\(")
"""A function with such a call could end other processes or delete files if it is changed."""

LOG = re.compile(r"\b(log|logger|_log|warnings)\.\w+$|\bprint$|\bsuper\(\)\.__init__$")
"""Calls that write texts for people, or whose change always breaks the module."""

ALIKE = {"frozen", "slots", "kw_only", "eq", "repr", "strict", "stacklevel"}
"""Arguments that only guard against wrong use, or change how an object may be built."""


NEVER = ("TYPE_CHECKING", "__name__ == '__main__'")
"""Conditions that are false in tests."""


class Mutation(NamedTuple):
    """A changed line of a module.

    Attributes:
        file: path of the module from the root of the repository.
        line: number of the line.
        old: the line without its indentation.
        new: the changed line without its indentation.
    """

    file: str
    line: int
    old: str
    new: str


def draw(count: int, seed: int) -> list[Mutation]:
    """Draw mutations of different modules; those of packages that compute numbers are drawn more often."""
    rng = random.Random(seed)
    pools = {path: sorted({*mutations(path)}) for path in sorted(SOURCE.rglob("*.py"))}
    keys = {}  # weighted sampling without replacement (Efraimidis & Spirakis, 2006)
    for path, pool in pools.items():
        weight = 3 if path.relative_to(SOURCE).parts[0] in COMPUTING else 1
        keys[path] = rng.random() ** (1 / weight) if pool else 0.0
    drawn = sorted((path for path in pools if pools[path]), key=keys.__getitem__, reverse=True)
    return [rng.choice(pools[path]) for path in drawn[:count]]


def mutations(path: Path) -> Iterator[Mutation]:
    """Generate all mutations of a module."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    for node in executed(tree, source):
        for place, start, end, new in changes(node, lines):
            line = lines[place - 1]
            if line.isascii():  # else, the columns count bytes
                changed = f"{line[:start]}{new}{line[end:]}"
                yield Mutation(str(path.relative_to(ROOT)), place, line.strip(), changed.strip())


def executed(node: ast.AST, source: str) -> Iterator[ast.AST]:
    """Generate the nodes that a program runs and a test could see."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.JoinedStr, ast.Assert)):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) in NEVER:
                continue
            if isinstance(child, ast.Subscript) and ast.unparse(child.value) in ("Literal", "Annotated"):
                continue
            if isinstance(child, ast.keyword) and child.arg in ALIKE:
                continue
            if isinstance(child, ast.Call) and LOG.search(ast.unparse(child.func)):
                continue
            if isinstance(child, ast.FunctionDef) and DANGEROUS.search(
                ast.get_source_segment(source, child) or ""
            ):
                continue
            yield child
            yield from executed(child, source)


def changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Generate the line, the first and last column, and the new text of each change of a node."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from between(left, right, operator, lines)
        case ast.BinOp(left=left, op=operator, right=right) if not isinstance(left, ast.List):
            yield from between(left, right, operator, lines)
        case ast.BoolOp(op=operator, values=[left, right, *_]):
            yield from between(left, right, operator, lines)
        case ast.UnaryOp(op=ast.Not(), operand=operand) if operand.lineno == node.lineno:
            yield node.lineno, node.col_offset, node.col_offset + len("not "), ""
        case ast.If(test=test) | ast.IfExp(test=test) if test.lineno == test.end_lineno:
            old = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
            yield test.lineno, test.col_offset, test.end_col_offset or 0, f"not ({old})"
        case ast.Constant(value=bool() as value):
            yield node.lineno, node.col_offset, node.end_col_offset or 0, str(not value)
        case ast.Constant(value=int() | float() as value):
            yield node.lineno, node.col_offset, node.end_col_offset or 0, str(value + 1)
        case ast.Expr(value=ast.Call(func=called)) if node.lineno == node.end_lineno:
            if not LOG.search(ast.unparse(called)):
                yield node.lineno, node.col_offset, node.end_col_offset or 0, "pass"


def between(
    left: ast.expr, right: ast.expr, operator: ast.AST, lines: list[str]
) -> Iterator[tuple[int, int, int, str]]:
    """Generate the change of the operator between two operands on one line."""
    if type(operator) not in SWAPPED or left.end_lineno != right.lineno:
        return
    old, new = SWAPPED[type(operator)]
    start, end = left.end_col_offset or 0, right.col_offset
    place = lines[right.lineno - 1].find(old, start, end)
    if place >= 0:
        yield right.lineno, place, place + len(old), new


def tests_of(path: Path, count: int) -> list[str]:
    """Return the test files of a module that may fail soonest, from the root of the repository.

    First the one named like it in the folder that mirrors it, then those that import it, mention what it
    defines, or are of its package; of these, the ones of its package that mention it most often first.
    """
    module = path.relative_to(SOURCE).with_suffix("")
    name = (module.parent.name if module.name == "__init__" else module.name).strip("_")
    dotted = re.escape(".".join(("attnlab", *module.parts)).removesuffix(".__init__"))
    importing = re.compile(rf"^ *(from {dotted} import|import {dotted}\b)", re.MULTILINE)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if hasattr(node, "name")} - {"main", "add_arguments"} | {name}
    mentioned = re.compile("|".join(rf"\b{each}\b" for each in names))

    def rank(test: Path) -> tuple[object, ...]:
        text = test.read_text(encoding="utf-8")
        near = test.is_relative_to(TESTS / module.parts[0])
        is_named = near and test.stem == f"test_{name}" and test.parent == TESTS / module.parent
        mentions = len(mentioned.findall(text))
        imports = importing.search(text) is not None
        return not is_named, not imports, not (near and mentions), not near, -mentions, str(test)

    found = sorted(TESTS.rglob("test_*.py"), key=rank)
    return [str(test.relative_to(ROOT)) for test in found[:count]]
