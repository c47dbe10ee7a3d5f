"""Figures as parts of a page: its fonts, and its colours, light or dark."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import matplotlib as mpl
from matplotlib.figure import Figure

from attnlab.report.styles import INK, MUTED, RULE, STYLE, Style


def embed(figure: Figure, styles: Iterable[Style]) -> str:
    """An `<svg>` element. Its texts are texts, and its colours are names that page.css gives a colour."""
    buffer = io.StringIO()
    with mpl.rc_context(fname=STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # the same in every figure, and nothing refers to them
    colours = {style.colour.lower(): style.variable for style in styles}
    colours |= {INK: "currentColor", MUTED: "var(--muted)", RULE: "var(--rule)"}
    return re.sub(r'style="[^"]*"', lambda style: _renamed(style[0], colours), svg)


def _renamed(style: str, colours: dict[str, str]) -> str:
    for colour, name in colours.items():
        style = style.replace(colour, name)
    return style
