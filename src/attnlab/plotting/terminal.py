"""Attention weights as text in a terminal, with or without colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from attnlab.plotting.figures import visible

SHADES = ((0.75, "█"), (0.5, "▓"), (0.25, "▒"), (0.05, "░"))
"""What a weight of at least so much is drawn with; what is below is left blank."""
COLOUR = "bright_blue"
NARROWEST, WIDEST = 2, 12  # cells of a column
WIDEST_LABEL = 16  # cells of a row's label


def heatmap(weights: NDArray, source: Sequence[str], target: Sequence[str], *, width: int) -> Iterator[Text]:  # type: ignore[type-arg]
    """Lines of a heat map: a row for each target token, a column for each source token.

    Where `width` cells of a terminal are too few for all columns, the map is broken into maps one below the
    other. Wide characters and such as combine are counted as a terminal does.

    Args:
        weights: [T, S], each 0 to 1.
        source: S tokens; long ones are cut, never within a character.
        target: T tokens.
        width: of the terminal, in cells.
    """
    labels = [_shown(token) for token in target]
    margin = min(max(map(cell_len, labels)), WIDEST_LABEL)
    columns = [_shown(token) for token in source]
    widths = [min(max(cell_len(column), NARROWEST), WIDEST) for column in columns]
    for panel in _panels(widths, width - margin - 2):
        head = (_fit(columns[place], widths[place]) for place in panel)
        yield Text(" " * (margin + 2) + " ".join(head), style="bold")
        for label, row in zip(labels, weights, strict=True):
            line = Text(f"{_right(label, margin)}  ")
            line.append(" ".join(_shade(row[place]) * widths[place] for place in panel), style=COLOUR)
            yield line
        yield Text()


def _panels(widths: Sequence[int], room: int) -> Iterator[range]:
    """The columns of each map: as many as have room beside each other, and one at least."""
    start = 0
    while start < len(widths):
        taken = accumulate(width + 1 for width in widths[start:])  # a blank after each
        fitting = sum(total - 1 <= room for total in taken)
        yield range(start, start + max(1, fitting))
        start += max(1, fitting)


def _shown(token: str) -> str:
    return visible(token) or "∅"


def _shade(weight: float) -> str:
    return next((shade for least, shade in SHADES if weight >= least), " ")


def _fit(text: str, width: int) -> str:
    """Exactly `width` cells: cut, with a sign that it was, or filled up."""
    return set_cell_size(text, width) if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text if cell_len(text) <= width else _fit(text, width)
