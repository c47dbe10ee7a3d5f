"""Line plots of named series, such as metrics over training steps."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from attnlab.metrics.registry import METRICS, metric
from attnlab.report.files import save_png_and_svg
from attnlab.report.style import COLOURS, DASHES, STYLE_SHEET
from attnlab.report.text import LabelFonts


def plot_curves(
    series: Mapping[str, Sequence[tuple[float, float]]], *, x_label: str = "step", y_label: str = ""
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


def save_training_curves(series: Mapping[str, Sequence[tuple[int, float]]], folder: Path) -> None:
    """Plot curves of training, a PNG and an SVG for each group of metrics with one scale.

    The groups are loss, learning rate, accuracies, BLEU-like scores, error rates and attention metrics.
    """
    attention = [
        name
        for name, info in METRICS.items()
        if info.kind == "attention" and info.format in ("share", "fraction") and info.direction != "lower"
    ]
    decoded = {name: info for name, info in METRICS.items() if info.kind in ("token", "text")}
    by_format = {
        format: [f"val/{name}" for name, info in decoded.items() if info.format == format]
        for format in ("share", "points", "percent", "rate")
    }
    figures = {
        "loss": ("loss, in nats", ["train/loss_epoch", "val/loss"]),
        "learning_rate": ("learning rate", [name for name in series if name.startswith("lr-")]),
        "accuracy": ("accuracy, in %", by_format["share"]),
        "bleu": ("score, 0 to 100", by_format["points"]),
        "error_rate": ("error rate, in %", [*by_format["percent"], *by_format["rate"]]),
        "attention": ("attention", attention),
    }
    for title, (label, names) in figures.items():
        chosen = {name: series[name] for name in names if name in series}
        if label.endswith("%"):
            chosen = {
                name: [(step, metric(name).scale * value) for step, value in points]
                for name, points in chosen.items()
            }
        if chosen:
            save_png_and_svg(plot_curves(chosen, y_label=label), folder / title)
