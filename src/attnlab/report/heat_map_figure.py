"""Heat maps of attention weights as matplotlib figures.

Figures are built without pyplot and its global state; `attnlab.report.files.save` writes them.
"""

from collections.abc import Sequence
from math import ceil
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from numpy.typing import NDArray
from rich.cells import cell_len

from attnlab.files.predictions import Prediction
from attnlab.report.files import InlineFigure
from attnlab.report.heat_map import COLUMNS, PROBABILITY, ROWS, weights_of
from attnlab.report.style import COLOUR_MAP, COLOURS
from attnlab.report.text import LabelFonts, token_label, truncate

# Inches
CELL_SIZE = 0.42  # side of a cell, unless the map would exceed the maximum
MAX_WIDTH, MAX_HEIGHT = 11.0, 8.0  # maximum size of all cells together
MIN_VALUE_WIDTH, MIN_VALUE_HEIGHT = 0.32, 0.18  # smallest cell in which the text 0.25 fits
MIN_RULED_CELL = 0.12  # smallest cell that is separated from its neighbours by a line
LABEL_PITCH = 0.21  # distance between labels, rotated or not
BAR_GAP = 0.5  # between the map and the colour bar: space for probabilities
MARGIN = 0.1

# Points
LABEL_SIZE, VALUE_SIZE, TITLE_SIZE = 9, 7.5, 11
LINE_PITCH = 13  # distance between lines below the map

MAX_LABEL_LENGTH = 18  # characters
GRID = "0.7"  # grey of lines
MIN_LINE, CHARACTER_WIDTH = 40, 0.085  # characters of a line below the map, and inches of one


def plot_heatmap(prediction: Prediction, title: str = "") -> InlineFigure:
    """Plot attention weights, one row for each output token and one column for each source token.

    The colour scale is always 0 to 1, so that maps are comparable. Values are printed in cells that are large
    enough, except those below 0.005; otherwise a colour bar is drawn. Labels are thinned out where they would
    overlap, and long tokens are truncated.
    """
    values = weights_of(prediction)  # [T, S]
    shape = values.shape
    height, width = min(CELL_SIZE * shape[0], MAX_HEIGHT), min(CELL_SIZE * shape[1], MAX_WIDTH)
    cell_height, cell_width = height / shape[0], width / shape[1]
    rows, columns = ([*map(token_label, side)] for side in (prediction.tokens, prediction.source_tokens))
    texts = {
        "source": prediction.source,
        "prediction": prediction.hypothesis,
        "reference": " | ".join(prediction.references),
    }
    texts = {name: f"{name}: {text}" for name, text in texts.items() if text}
    fonts = LabelFonts([title, *rows, *columns, *texts.values()])
    lines = [
        line
        for text in map(fonts.drawable, texts.values())
        for line in wrap(text, int(max(MIN_LINE, (width + 1) / CHARACTER_WIDTH) * len(text) / cell_len(text)))
    ]

    figure = InlineFigure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(values, cmap=COLOUR_MAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.tick_params(which="both", length=0, pad=3, labelsize=LABEL_SIZE)
    axes.spines[:].set_color(GRID)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(COLUMNS, fontsize=LABEL_SIZE)
    axes.set_ylabel(ROWS, fontsize=LABEL_SIZE)
    _set_labels(axes.yaxis, rows, cell_height, fonts)
    _set_labels(axes.xaxis, columns, cell_width, fonts)
    _rotate_wide_labels(axes.get_xticklabels(), figure.dpi * width / len(axes.get_xticks()))
    if min(cell_height, cell_width) >= MIN_RULED_CELL:
        _draw_cell_borders(axes, shape)
    if cell_height >= MIN_VALUE_HEIGHT and cell_width >= MIN_VALUE_WIDTH:
        _print_values(axes, values)
    else:
        _add_colour_bar(axes, image, height, width)
    if prediction.probabilities is not None:
        _print_probabilities(axes, prediction.probabilities, ceil(LABEL_PITCH / cell_height))
    _frame_cells(axes, prediction.alignment or ())
    if title:
        shown = fonts.drawable(title)
        fonts.apply(axes.set_title(shown, fontsize=TITLE_SIZE, loc="left", pad=10))
    for position, line in enumerate(lines, start=1):
        fonts.apply(
            axes.annotate(
                line,
                (0, 0),
                xycoords="axes fraction",
                xytext=(0, -position * LINE_PITCH),
                textcoords="offset points",
                fontsize=LABEL_SIZE,
            )
        )
    _grow_to_labels(figure, axes, height, width)
    return figure


def _set_labels(axis: Axis, tokens: Sequence[str], cell: float, fonts: LabelFonts) -> None:
    """Label every n-th token, with n such that labels do not overlap in cells of `cell` inches."""
    every = ceil(LABEL_PITCH / cell)
    labels = [truncate(fonts.drawable(token), MAX_LABEL_LENGTH) for token in tokens[::every]]
    axis.set_ticks(range(0, len(tokens), every), labels=labels)
    fonts.apply(*axis.get_ticklabels())


def _rotate_wide_labels(labels: Sequence[Text], available: float) -> None:
    """Rotate all column labels if one of them is wider than the available width in pixels."""
    if any(label.get_window_extent().width > 0.9 * available for label in labels):
        for label in labels:
            label.set(rotation=45, ha="left", va="baseline", rotation_mode="anchor")


def _draw_cell_borders(axes: Axes, shape: tuple[int, int]) -> None:
    axes.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
    axes.set_xticks(np.arange(1, shape[1]) - 0.5, minor=True)
    axes.grid(which="minor", color=GRID, linewidth=0.5, alpha=0.4)


def _print_values(axes: Axes, values: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(values):
        if not value < 0.005:  # omit 0.00, but print NaN
            colour = "white" if value > 0.6 else "black"
            axes.text(column, row, f"{value:.2f}", size=VALUE_SIZE, color=colour, ha="center", va="center")


def _print_probabilities(axes: Axes, probabilities: Sequence[float], every: int) -> None:
    """Print the probability of every n-th output token at the right of its row."""
    style: dict[str, Any] = {
        "xycoords": ("axes fraction", "data"),
        "textcoords": "offset points",
        "size": VALUE_SIZE,
    }
    axes.annotate(PROBABILITY, (1, -0.5), xytext=(7, 5), va="bottom", style="italic", **style)
    for row, p in list(enumerate(probabilities))[::every]:
        axes.annotate(f"{p:.2f}", (1, row), xytext=(5, 0), va="center", **style)


def _add_colour_bar(axes: Axes, image: AxesImage, height: float, width: float) -> None:
    length = min(height, 2.0)
    inset = axes.inset_axes((1 + BAR_GAP / width, 1 - length / height, 0.12 / width, length / height))
    axes.figure.colorbar(image, cax=inset, ticks=[0, 1] if length < 1 else [0, 0.25, 0.5, 0.75, 1])
    inset.tick_params(length=2, color=GRID, labelsize=VALUE_SIZE)
    inset.spines[:].set_color(GRID)


def _frame_cells(axes: Axes, links: Sequence[Sequence[int]]) -> None:
    for row, column in links:
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, color=COLOURS[1], linewidth=2)
        frame.set(clip_on=False, zorder=3)  # above the cell borders
        axes.add_patch(frame)


def _grow_to_labels(figure: Figure, axes: Axes, height: float, width: float) -> None:
    """Enlarge the figure until all labels fit, keeping the cells at `height` × `width` inches."""
    box = figure.get_tightbbox()
    full_width, full_height = box.width + 2 * MARGIN, box.height + 2 * MARGIN
    figure.set_size_inches(full_width, full_height)
    left, bottom = MARGIN - box.x0, MARGIN - box.y0
    axes.set_position((left / full_width, bottom / full_height, width / full_width, height / full_height))
