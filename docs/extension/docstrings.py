"""Adapt Google-style docstrings, which contain plain-text equations, to reStructuredText."""

from __future__ import annotations

from sphinx.application import Sphinx


def escape_bars(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape vertical bars: `|h_j|` is a norm and not a substitution."""
    lines[:] = [line.replace("|", "\\|") if "``" not in line else line for line in lines]


def skip_fields(app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out the fields of named tuples, whose only docstring is "Alias for field number n"."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the events of autodoc."""
    app.connect("autodoc-process-docstring", escape_bars)
    app.connect("autodoc-skip-member", skip_fields)
    return {"parallel_read_safe": True}
