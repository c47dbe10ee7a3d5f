"""Attention heat maps as text for a terminal."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from attnlab.files.predictions import Prediction
from attnlab.report.heat_map import COLUMNS, PROBABILITY, ROWS, weights_of
from attnlab.report.text import token_label

SHADES, LEVELS = " ░▒▓█", (0.05, 0.25, 0.5, 0.75)  # Characters, and the smallest weights of all but the first
COLOUR = "bright_blue"
MIN_COLUMN, MAX_COLUMN = 2, 12  # width of a column in terminal cells
MAX_LABEL = 16  # width of a row label in terminal cells


def heatmap_lines(prediction: Prediction, width: int) -> Iterator[Text]:
    """Yield the lines of a heat map, one row for each output token and one column for each source token.

    If a terminal of this width, in cells, is too narrow for all columns, the map is split into several maps
    below each other; the last one has the probabilities. Wide and combining characters take the width that a
    terminal gives them.
    """
    rows = [*map(token_label, prediction.tokens)]
    columns = [*map(token_label, prediction.source_tokens)]
    weights = weights_of(prediction)  # [T, S]
    margin = min(max(map(cell_len, rows)), MAX_LABEL)
    widths = [min(max(cell_len(column), MIN_COLUMN), MAX_COLUMN) for column in columns]
    # texts and style of each column below its head
    cells = [
        ([SHADES[level] * size for level in np.digitize(weights[:, column], LEVELS)], COLOUR)
        for column, size in enumerate(widths)
    ]
    axes = f"rows: {ROWS}, columns: {COLUMNS}"
    if prediction.probabilities:
        axes += f", {PROBABILITY}: probability"
        columns.append(PROBABILITY)
        cells.append(([f"{p:.2f}" for p in prediction.probabilities], "dim"))
        widths.append(4)
    yield Text(axes, style="dim")
    for panel in _split_columns(widths, width - margin - 2):
        heads = (_fit(columns[column], widths[column]) for column in panel)
        yield Text(" " * (margin + 2), style="bold") + Text(" ").join(heads)
        for number, row in enumerate(rows):
            shown = (Text(cells[column][0][number], cells[column][1]) for column in panel)
            yield _fit(row, margin, "right") + Text("  ") + Text(" ").join(shown)
        yield Text()


def print_heatmap(prediction: Prediction) -> None:
    """Print the heat map of a prediction to the terminal."""
    console = Console(highlight=False)
    for line in heatmap_lines(prediction, console.width):
        line.rstrip()
        console.print(line, soft_wrap=True)


def _split_columns(widths: Sequence[int], available: int) -> Iterator[range]:
    """Yield the columns of each map: as many as fit into the available width, and at least one."""
    start = 0
    while start < len(widths):
        ends = accumulate(width + 1 for width in widths[start:])  # one blank after each column
        end = start + max(1, sum(end - 1 <= available for end in ends))
        yield range(start, end)
        start = end


def _fit(label: str, width: int, side: Literal["left", "right"] = "left") -> Text:
    """Pad or truncate to exactly `width` cells; truncation is marked with an ellipsis."""
    text = Text(label)
    text.truncate(width, overflow="ellipsis")
    text.align(side, width)
    return text
