"""Figures as inline SVG that takes its fonts and its light or dark colours from the page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import matplotlib as mpl
from matplotlib.figure import Figure

from attnlab.plotting.style import INK, MUTED, RULE, STYLE_SHEET, VariantStyle

MARKER_PATHS = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "s": "M-3.6-3.6h7.2v7.2h-7.2z",
    "^": "M0-4.6L4.6 3.6H-4.6z",
    "D": "M0-5L5 0L0 5L-5 0z",
    "v": "M0 4.6L4.6-3.6H-4.6z",
    "P": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
}
"""SVG path data of each matplotlib marker, centred at (0, 0)."""

DASH_ARRAYS = {"solid": "", "dashed": "6 3", "dotted": "2 2.5", "dashdot": "7 3 2 3"}
"""SVG `stroke-dasharray` of each matplotlib line style."""


def css_colour(style: VariantStyle) -> str:
    """Return the CSS variable of a variant's colour; page.css defines its light and dark value."""
    return f"var(--c{style.colour_index})"


def embed(figure: Figure, styles: Iterable[VariantStyle]) -> str:
    """Render a figure as an `<svg>` element with text as text, and colours as CSS variables of page.css."""
    buffer = io.StringIO()
    with mpl.rc_context(fname=STYLE_SHEET):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # duplicate ids across figures; nothing refers to them
    variables = {style.colour.lower(): css_colour(style) for style in styles}
    variables |= {INK: "currentColor", MUTED: "var(--muted)", RULE: "var(--rule)"}
    return re.sub(r'style="[^"]*"', lambda style: _substitute(style[0], variables), svg)


def _substitute(style: str, variables: dict[str, str]) -> str:
    for colour, variable in variables.items():
        style = style.replace(colour, variable)
    return style
