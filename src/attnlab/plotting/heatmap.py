"""Heat maps of attention weights.

Figures are built without pyplot and its global state; `attnlab.plotting.files.save` writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray

from attnlab.plotting.files import InlineFigure
from attnlab.plotting.style import COLOUR_MAP, COLOURS
from attnlab.plotting.text import LabelFonts, truncate, with_whitespace_symbols

# Inches
CELL_SIZE = 0.42  # side of a cell, unless the map would exceed the maximum
MAX_WIDTH, MAX_HEIGHT = 11.0, 8.0  # maximum size of all cells together
MIN_VALUE_WIDTH, MIN_VALUE_HEIGHT = 0.32, 0.18  # smallest cell in which the text 0.25 fits
MIN_RULED_CELL = 0.12  # smallest cell that is separated from its neighbours by a line
LABEL_PITCH = 0.21  # distance between labels, rotated or not
MARGIN = 0.1

# Points
LABEL_SIZE, VALUE_SIZE, TITLE_SIZE = 9, 7.5, 11

MAX_LABEL_LENGTH = 18  # characters


def plot_heatmap(
    weights: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str = "",
    alignment: ArrayLike | None = None,
) -> InlineFigure:
    """Plot attention weights, one row for each target token and one column for each source token.

    Args:
        weights: [T, S] in [0, 1]. The colour scale is always 0 to 1, so that maps are comparable. Values are
            printed in cells that are large enough, except those below 0.005; otherwise a colour bar is drawn.
        source: S tokens. Labels are thinned out where they would overlap, and long tokens are truncated.
        target: T tokens.
        title: title of the figure.
        alignment: [T, S], True where a gold alignment links two tokens; these cells are framed.

    Raises:
        ValueError: if the shapes disagree, or T or S is 0.
    """
    shape = (len(target), len(source))
    values = _as_matrix("weights", weights, shape).astype(float)  # [T, S]
    height, width = min(CELL_SIZE * shape[0], MAX_HEIGHT), min(CELL_SIZE * shape[1], MAX_WIDTH)
    cell_height, cell_width = height / shape[0], width / shape[1]
    rows = [with_whitespace_symbols(token) for token in target]
    columns = [with_whitespace_symbols(token) for token in source]
    fonts = LabelFonts([title, *rows, *columns])

    figure = InlineFigure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(values, cmap=COLOUR_MAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.tick_params(which="both", length=0, pad=3, labelsize=LABEL_SIZE)
    axes.spines[:].set_color("0.7")
    axes.xaxis.tick_top()
    _set_labels(axes.yaxis, rows, cell_height, fonts)
    _set_labels(axes.xaxis, columns, cell_width, fonts)
    _rotate_wide_labels(axes.get_xticklabels(), figure.dpi * width / len(axes.get_xticks()))
    if min(cell_height, cell_width) >= MIN_RULED_CELL:
        _draw_cell_borders(axes, shape)
    if cell_height >= MIN_VALUE_HEIGHT and cell_width >= MIN_VALUE_WIDTH:
        _print_values(axes, values)
    else:
        _add_colour_bar(axes, image, height, width)
    if alignment is not None:
        _frame_cells(axes, _as_matrix("alignment", alignment, shape).astype(bool))
    if title:
        fonts.apply(axes.set_title(fonts.drawable(title), fontsize=TITLE_SIZE, loc="left", pad=10))
    _grow_to_labels(figure, axes, height, width)
    return figure


def _as_matrix(name: str, array: ArrayLike, shape: tuple[int, int]) -> NDArray[np.generic]:
    """Convert to an array of the given shape [T, S]."""
    matrix = np.asarray(array)
    if matrix.shape != shape or 0 in shape:
        raise ValueError(
            f"{name} have shape {list(matrix.shape)}, but must have shape [T, S] with T = {shape[0]} target "
            f"tokens and S = {shape[1]} source tokens, neither of them 0"
        )
    return matrix


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
    axes.grid(which="minor", color="0.88", linewidth=0.5)


def _print_values(axes: Axes, values: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(values):
        if not value < 0.005:  # omit 0.00, but print NaN
            colour = "white" if value > 0.6 else "black"
            axes.text(column, row, f"{value:.2f}", size=VALUE_SIZE, color=colour, ha="center", va="center")


def _add_colour_bar(axes: Axes, image: AxesImage, height: float, width: float) -> None:
    length = min(height, 2.0)
    inset = axes.inset_axes((1 + 0.15 / width, 1 - length / height, 0.12 / width, length / height))
    axes.figure.colorbar(image, cax=inset, ticks=[0, 1] if length < 1 else [0, 0.25, 0.5, 0.75, 1])
    inset.tick_params(length=2, color="0.7", labelsize=VALUE_SIZE)
    inset.spines[:].set_color("0.7")


def _frame_cells(axes: Axes, cells: NDArray[np.bool_]) -> None:
    for row, column in np.argwhere(cells):
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
