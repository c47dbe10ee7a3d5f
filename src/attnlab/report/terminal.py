"""Attention heat maps as text for a terminal."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from attnlab.files.predictions import Prediction
from attnlab.report.heat_map import COLUMNS, PROBABILITY, ROWS, weights_of
from attnlab.report.text import visible

SHADES = ((0.75, "█"), (0.5, "▓"), (0.25, "▒"), (0.05, "░"))
"""(Minimum weight, character); smaller weights are blank."""
COLOUR = "bright_blue"
MIN_COLUMN, MAX_COLUMN = 2, 12  # width of a column in terminal cells
MAX_LABEL = 16  # width of a row label in terminal cells


def heatmap_lines(prediction: Prediction, width: int) -> Iterator[Text]:
    """Yield the lines of a heat map, one row for each output token and one column for each source token.

    If a terminal of this width, in cells, is too narrow for all columns, the map is split into several maps
    below each other; the last one has the probabilities. Wide and combining characters take the width that a
    terminal gives them.
    """
    probabilities = [f"{p:.2f}" for p in prediction.probabilities or ()]
    axes = f"rows: {ROWS}, columns: {COLUMNS}"
    yield Text(f"{axes}, {PROBABILITY}: probability" if probabilities else axes, style="dim")
    labels = [_label(token) for token in prediction.tokens]
    margin = min(max(map(cell_len, labels)), MAX_LABEL)
    columns = [_label(token) for token in prediction.source_tokens]
    weights = weights_of(prediction)  # [T, S]
    if probabilities:
        columns.append(PROBABILITY)
    widths = [min(max(cell_len(column), MIN_COLUMN), MAX_COLUMN) for column in columns]
    if probabilities:
        widths[-1] = len(probabilities[0])
    for panel in _split_columns(widths, width - margin - 2):
        head = (_fit(columns[column], widths[column]) for column in panel)
        yield Text(" " * (margin + 2) + " ".join(head), style="bold")
        for number, label in enumerate(labels):
            line = Text(f"{_fit_right(label, margin)}  ")
            for column in panel:
                line.append(" " if column > panel.start else "")
                if column < len(prediction.source_tokens):
                    line.append(_shade(weights[number, column]) * widths[column], style=COLOUR)
                else:
                    line.append(probabilities[number], style="dim")
            yield line
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
        fitting = sum(end - 1 <= available for end in ends)
        yield range(start, start + max(1, fitting))
        start += max(1, fitting)


def _label(token: str) -> str:
    return visible(token) or "∅"


def _shade(weight: float) -> str:
    return next((shade for minimum, shade in SHADES if weight >= minimum), " ")


def _fit(text: str, width: int) -> str:
    """Pad or truncate to exactly `width` cells; truncation is marked with an ellipsis."""
    return set_cell_size(text, width) if cell_len(text) <= width else f"{set_cell_size(text, width - 1)}…"


def _fit_right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text if cell_len(text) <= width else _fit(text, width)
