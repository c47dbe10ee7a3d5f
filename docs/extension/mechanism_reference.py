"""Directive `{mechanisms}`: picture, equation and use of every option of `conf/attention`.

Equation and use are from `docs/gallery/mechanisms.yaml`; the pictures are drawn from
`docs/gallery/weights.json`, which `docs/gallery/train.py` writes.
"""

import html
import inspect
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from docutils import nodes
from hydra.utils import get_object
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnlab.report.heat_map import COLUMNS, ROWS
from configuration_reference import CONF, description, header, note_code

GALLERY = Path(__file__).parents[1] / "gallery"
GROUPS = {
    "Scores of the content": ("additive", "concat", "dot", "scaled_dot", "general", "cosine"),
    "With positions, or the weights before": (
        *("shift", "location_sensitive", "coverage_see", "coverage_tu", "location", "local_m", "local_p"),
    ),
    "Forward only": ("mixture", "forward", "monotonic", "mocha", "milk"),
    "Other weights, or several": ("hard", "markov", "multihead", "sigmoid", "sink", "differential"),
    "Baselines": ("mean", "final", "none", "none_matched"),
}
TASKS = {"reverse": "reverses", "copy": "copies"}
PAPER = re.compile(r"arXiv (\d{4}\.\d{4,5})")

# Pixels of a picture
CELL, FONT, CHARACTER = 24, 11, 6.7


class Mechanisms(SphinxDirective):
    """One entry for each file of `conf/attention`."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each group, with a section for each option."""
        note_code(self.env)
        files = [GALLERY / "mechanisms.yaml", GALLERY / "weights.json"]
        for path in (*files, *(CONF / "attention").glob("*.yaml")):
            self.env.note_dependency(str(path))
        texts, trained = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in files)
        lines: list[str] = []
        for group, names in GROUPS.items():
            lines += [f"## {group}", ""]
            for name in names:
                lines += entry(name, texts[name], trained.get(name))
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def entry(name: str, text: dict[str, Any], found: dict[str, Any] | None) -> list[str]:
    """Return the Markdown lines of one option."""
    file = (CONF / "attention" / f"{name}.yaml").read_text(encoding="utf-8")
    documentation = inspect.getdoc(get_object(yaml.safe_load(file)["_target_"])) or ""
    title = re.split(r": |\. |\.\n|, (?=monotonic|predictive|with)", header(file.splitlines()))[0].rstrip(".")
    papers = [f"[arXiv {number}](https://arxiv.org/abs/{number})" for number in PAPER.findall(documentation)]
    lines = [
        f"### `{name}`",
        "",
        "".join([*description(title), *(f", {link}" for link in dict.fromkeys(papers))]),
        "",
    ]
    if found is not None:
        lines += ["```{raw} html", picture(found), "```", ""]
    for equation in text["equation"]:
        lines += ["```{math}", equation, "```", ""]
    lines += [f"**When it pays.** {text['pays']}", ""]
    return lines


def picture(found: dict[str, Any]) -> str:
    """Return the heat map as SVG, with the share of unseen sequences that are right."""
    rows, columns = [*map(str, found["output"]), "<eos>"], SENTENCE
    svg = draw(rows, columns, np.asarray(found["weights"], dtype=float))
    share = f"{TASKS[found['task']]} {100 * found['exact_match']:.0f} % of unseen sequences"
    return f'<figure class="map-figure">{svg}<figcaption>{share}</figcaption></figure>'


def draw(rows: Sequence[str], columns: Sequence[str], weights: np.ndarray) -> str:
    """Return weights [T, S] as an inline `<svg>`, which has the text colour of the page, light or dark."""
    longest = max(map(len, columns))
    left = 22 + CHARACTER * max(map(len, rows))
    top = 26 + CHARACTER * (longest if longest > 3 else 1)
    width, height = CELL * len(columns), CELL * len(rows)
    parts = [
        f'<text x="{left + width / 2:g}" y="{FONT}" text-anchor="middle">{COLUMNS}</text>',
        f'<text transform="translate({FONT} {top + height / 2:g}) rotate(-90)" text-anchor="middle">'
        f"{ROWS}</text>",
    ]
    for number, token in enumerate(columns):
        place = f"translate({left + (number + 0.5) * CELL:g} {top - 6:g})"
        turn = ' rotate(-90)" text-anchor="start" dominant-baseline="central' if longest > 3 else ""
        anchor = "" if turn else '" text-anchor="middle'
        parts.append(f'<text transform="{place}{turn}{anchor}">{html.escape(token)}</text>')
    for number, token in enumerate(rows):
        line = f'y="{top + (number + 0.5) * CELL:g}" dominant-baseline="central"'
        parts.append(f'<text x="{left - 6:g}" {line} text-anchor="end">{html.escape(token)}</text>')
    for (row, column), weight in np.ndenumerate(weights):
        if weight >= 0.005:
            x, y = left + column * CELL, top + row * CELL
            parts.append(
                f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" fill="#2f7fc4" '
                f'fill-opacity="{weight:.2f}"><title>{weight:.2f}</title></rect>'
            )
    frame = f'x="{left:g}" y="{top:g}" width="{width}" height="{height}"'
    parts.append(f'<rect {frame} fill="none" stroke="currentColor" stroke-opacity="0.4"/>')
    size = f"{left + width + 1:g} {top + height + 1:g}"
    label = f"Attention weights: {len(rows)} output tokens, {len(columns)} source tokens"
    return (
        f'<svg viewBox="0 0 {size}" width="{left + width + 1:g}" role="img" aria-label="{label}" '
        f'font-family="sans-serif" font-size="{FONT}" fill="currentColor">{"".join(parts)}</svg>'
    )


SENTENCE = ["7", "3", "12", "5", "9", "14", "4", "8"]
"""The source of all pictures, that of `docs/gallery/train.py`."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("mechanisms", Mechanisms)
    return {"parallel_read_safe": True}
