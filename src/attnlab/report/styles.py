"""How a variant looks wherever it is drawn: its colour, its dashes and its mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnlab.plotting.figures import COLOURS, DASHES, Dash

STYLE = Path(__file__).with_name("figures.mplstyle")
"""Matplotlib's settings for the figures of a report."""

INK, MUTED, RULE = "#1c1c1a", "#66645e", "#dedcd5"
"""The colours of a figure besides those of variants, as page.css has them for light pages."""

MARKS = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "s": "M-3.6-3.6h7.2v7.2h-7.2z",
    "^": "M0-4.6L4.6 3.6H-4.6z",
    "D": "M0-5L5 0L0 5L-5 0z",
    "v": "M0 4.6L4.6-3.6H-4.6z",
    "P": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
}
"""Matplotlib's marks, and the same as paths about (0, 0) for a page."""

DASH_LENGTHS = {"solid": "", "dashed": "6 3", "dotted": "2 2.5", "dashdot": "7 3 2 3"}
"""Matplotlib's dashes, and lengths for a page."""


@dataclass(frozen=True)
class Style:
    """Readers who see no colours tell variants apart by dashes and marks."""

    colour: str  # "#rrggbb"
    variable: str  # the colour's name in page.css, which has another shade for dark pages
    dash: Dash  # as matplotlib calls it
    mark: str  # as matplotlib calls it


def styles(variants: Sequence[str]) -> dict[str, Style]:
    """A style for each variant, by its place: the first seven differ in colour, all of 42 in something."""
    return {
        variant: Style(
            COLOURS[place % len(COLOURS)],
            f"var(--c{place % len(COLOURS)})",
            DASHES[(place + place // len(COLOURS)) % len(DASHES)],
            list(MARKS)[place % len(MARKS)],
        )
        for place, variant in enumerate(variants)
    }
