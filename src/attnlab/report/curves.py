"""Line plots of named series, such as metrics over training steps."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from attnlab.report.style import COLOURS, DASHES, STYLE_SHEET
from attnlab.report.text import LabelFonts


def plot_curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    x_label: str = "step",
    y_label: str = "",
) -> Figure:
    """Plot each named series of (x, y) points as a line; a series of one point is a dot."""
    fonts = LabelFonts([x_label, y_label, *series])
    styles = ((colour, dash) for dash in cycle(DASHES) for colour in COLOURS)
    with mpl.rc_context(fname=STYLE_SHEET):
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        lines = []
        for points, (colour, dash) in zip(series.values(), styles, strict=False):
            x, y = np.asarray(points, dtype=float).reshape(-1, 2).T
            lines += axes.plot(x, y, color=colour, linestyle=dash, marker="o" if len(x) == 1 else "")
        fonts.apply(axes.set_xlabel(fonts.drawable(x_label)))
        fonts.apply(axes.set_ylabel(fonts.drawable(y_label)))
        if lines:
            names = [fonts.drawable(name) for name in series]
            fonts.apply(*figure.legend(lines, names, loc="outside right upper").get_texts())
    return figure
