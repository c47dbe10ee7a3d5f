"""Directive `{mechanisms}`: every attention option with its equation, paper and cost, from its class."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import yaml
from docutils import nodes
from hydra.utils import get_object
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from configuration_reference import CONF, description, header

PAPER = re.compile(r"arXiv (\d{4}\.\d{4,5})")
EQUATION = re.compile(r"::\n\n((?:    .*\n|\n)+)")
COST = re.compile(r"^Cost: ((?:.+\n?)+)", re.MULTILINE)


class Mechanisms(SphinxDirective):
    """One entry for each file of `conf/attention`."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each option."""
        lines: list[str] = []
        for path in sorted((CONF / "attention").glob("*.yaml")):
            self.env.note_dependency(str(path))
            lines += entry(path)
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def entry(path: Path) -> list[str]:
    """Return the Markdown lines of one option: its description, equation, cost and papers."""
    text = path.read_text(encoding="utf-8")
    documentation = inspect.getdoc(get_object(yaml.safe_load(text)["_target_"])) or ""
    lines = [f"### `{path.stem}`", "", *description(header(text.splitlines())), ""]
    if equation := EQUATION.search(documentation):
        lines += ["```text", inspect.cleandoc(equation[1]), "```", ""]
    if cost := COST.search(documentation):
        lines += [*description(f"Cost: {' '.join(cost[1].split())}"), ""]
    papers = [f"[arXiv {number}](https://arxiv.org/abs/{number})" for number in PAPER.findall(documentation)]
    return [*lines, ", ".join(dict.fromkeys(papers)), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("mechanisms", Mechanisms)
    return {"parallel_read_safe": True}
