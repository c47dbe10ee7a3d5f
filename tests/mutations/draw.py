"""Draw mutations of all packages at random: python tests/mutations/draw.py [COUNT] [SEED] > drawn.csv

A mutation changes one comparison, sign, constant, condition or connective on one line. Every module gets its
turn before another one gets its second, so that small packages are drawn as often as large ones. Its tests
are at most three files: the one named like it in the folder that mirrors it, then the smallest ones of its
package that import it, mention what it defines, or belong to it, then any that import it.
"""

from __future__ import annotations

import ast
import csv
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "attnlab"
TESTS = ROOT / "tests"
MOST_TESTS = 3
"""Largest number of test files of a mutation."""
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

DANGEROUS = re.compile(r"kill|rmtree|unlink|rename|replace\(")
"""A changed call of these could end other processes or delete files of the machine."""

Mutation = tuple[int, str, str]
"""Number of the line, the line without its indentation, and the same changed."""


def main(count: int = 320, seed: int = 0) -> None:
    """Print the drawn mutations as a CSV file."""
    rng = random.Random(seed)
    pools = {}
    for path in sorted(SOURCE.rglob("*.py")):
        found = sorted({*mutations(path)})
        rng.shuffle(found)
        pools[path] = found
    drawn: list[tuple[Path, Mutation]] = []
    while any(pools.values()) and len(drawn) < count:
        turn = [path for path, left in pools.items() if left]
        rng.shuffle(turn)
        drawn += [(path, pools[path].pop()) for path in turn[: count - len(drawn)]]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("file", "line", "old", "new", "tests"))
    for path, (line, old, new) in drawn:
        if DANGEROUS.search(old):
            continue
        writer.writerow((path.relative_to(ROOT), line, old, new, " ".join(tests_of(path))))


def mutations(path: Path) -> Iterator[Mutation]:
    """Generate all mutations of a module."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in executed(ast.parse(source)):
        for place, start, end, new in changes(node, lines):
            line = lines[place - 1]
            if not line.isascii():  # the columns count bytes
                continue
            yield place, line.strip(), f"{line[:start]}{new}{line[end:]}".strip()


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """Generate the nodes that a program runs: no annotations, f-strings or code for type checkers."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Subscript) and ast.unparse(child.value) in ("Literal", "Annotated"):
                continue
            yield child
            yield from executed(child)


def changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, int, int, str]]:
    """Generate the line, the first and last column, and the new text of each change of a node."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from between(left, right, operator, lines)
        case ast.BinOp(left=left, op=operator, right=right):
            yield from between(left, right, operator, lines)
        case ast.BoolOp(op=operator, values=[left, right, *_]):
            yield from between(left, right, operator, lines)
        case ast.UnaryOp(op=ast.Not(), operand=operand) if operand.lineno == node.lineno:
            yield node.lineno, node.col_offset, operand.col_offset, ""
        case ast.If(test=test) | ast.IfExp(test=test) if test.lineno == test.end_lineno:
            assert test.end_col_offset is not None
            old = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
            yield test.lineno, test.col_offset, test.end_col_offset, f"not ({old})"
        case ast.Constant(value=bool() as value):
            yield node.lineno, node.col_offset, node.end_col_offset or 0, str(not value)
        case ast.Constant(value=int() as value):
            yield node.lineno, node.col_offset, node.end_col_offset or 0, str(value + 1)


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


def tests_of(path: Path) -> list[str]:
    """Return the test files of a module, from the root of the repository."""
    module = path.relative_to(SOURCE).with_suffix("")
    name = (module.parent.name if module.name == "__init__" else module.name).strip("_")
    texts = {test: test.read_text(encoding="utf-8") for test in TESTS.rglob("test_*.py")}
    near = {test: text for test, text in texts.items() if test.is_relative_to(TESTS / module.parts[0])}
    dotted = ".".join(("attnlab", *module.parts)).removesuffix(".__init__")
    importing = re.compile(
        rf"^ *(from {re.escape(dotted)} import|import {re.escape(dotted)}\b)", re.MULTILINE
    )
    defined = [node.name for node in ast.parse(path.read_text()).body if hasattr(node, "name")]
    mentioned = re.compile("|".join(rf"\b{public}\b" for public in defined) or "(?!)")
    found: list[Path] = []
    for matches in (
        [test for test in near if test.stem == f"test_{name}" and test.parent == TESTS / module.parent],
        [test for test, text in near.items() if importing.search(text)],
        [test for test, text in near.items() if mentioned.search(text)],
        [test for test in near if test.parent == TESTS / module.parent],
        [test for test, text in texts.items() if importing.search(text)],
    ):
        found += sorted((test for test in matches if test not in found), key=lambda test: len(texts[test]))
    return [str(test.relative_to(ROOT)) for test in found[:MOST_TESTS]]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
