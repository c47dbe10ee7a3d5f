"""Adapt Google-style docstrings, which contain plain-text equations, to reStructuredText."""

import re

from sphinx.application import Sphinx
from torch.nn.functional import linear

MARKUP = re.compile(r"(`+[^`]*`+|(?<!\w)(\*{1,2})(?=\S)[^*]+(?<=\S)\2(?!\w))")
"""Code and emphasis, in which nothing is escaped."""


def escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape the bars of norms and the asterisks of products: `|h_j|` is not a substitution."""
    literal = None  # indentation of the line that introduces a literal block
    for number, line in enumerate(lines):
        indentation = len(line) - len(line.lstrip())
        if literal is not None and line.strip() and indentation <= literal:
            literal = None
        if literal is None:
            lines[number] = _escape(line)
            if line.rstrip().endswith("::"):
                literal = indentation


def _escape(line: str) -> str:
    parts = []
    position = 0
    for match in MARKUP.finditer(line):
        parts += [re.sub(r"([|*])", r"\\\1", line[position : match.start()]), match[0]]
        position = match.end()
    return "".join([*parts, re.sub(r"([|*])", r"\\\1", line[position:])])


def skip_fields(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of named tuples, and torch's product, whose docstring has labels of torch."""
    alias = (getattr(obj, "__doc__", None) or "").startswith("Alias for field number")
    return True if alias or obj is linear else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the events of autodoc, before napoleon adds its markup."""
    app.connect("autodoc-process-docstring", escape, priority=400)
    app.connect("autodoc-skip-member", skip_fields)
    return {"parallel_read_safe": True}
