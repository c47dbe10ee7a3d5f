"""Colours, dash patterns and markers that all figures share."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Literal

STYLE_SHEET = Path(__file__).with_name("attnlab.mplstyle")
"""Matplotlib style sheet of curves and of the figures of a report."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The Okabe-Ito palette without its yellow; distinguishable with colour vision deficiencies."""
INK, MUTED, RULE = "#1c1c1a", "#66645e", "#dedcd5"
"""Colours of text, axes and grid lines in the style sheet."""
COLOUR_MAP = "Blues"
"""Sequential colour map from white (0) to dark blue (1); its lightness decreases monotonically."""

Dash = Literal["solid", "dashed", "dotted", "dashdot"]
DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted", "dashdot")
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class VariantStyle:
    """Colour, dash pattern and marker of one variant; dashes and markers work without colour vision."""

    colour_index: int  # in `COLOURS`
    dash: Dash
    marker: str

    @property
    def colour(self) -> str:
        """Colour of the lines as "#rrggbb"."""
        return COLOURS[self.colour_index]


def variant_styles(variants: Sequence[str]) -> dict[str, VariantStyle]:
    """Assign a style to each variant by its position.

    The first seven differ in colour, the first 28 in colour or dash pattern.
    """
    styles = zip(cycle(range(len(COLOURS))), cycle(DASHES), cycle(MARKERS), strict=False)
    return {variant: VariantStyle(*style) for variant, style in zip(variants, styles, strict=False)}
