"""Parts shared by all figures of a study: texts, axes, marks, the legend, and SVG for the page."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnlab.metrics.registry import Metric
from attnlab.report.files import save
from attnlab.report.statistics import Estimate
from attnlab.report.study import Study
from attnlab.report.style import INK, MUTED, RULE, STYLE_SHEET, VariantStyle, variant_styles
from attnlab.report.text import truncate

Styles = Mapping[str, VariantStyle]

MAX_NAME = 30  # characters of a variant's name in a figure

# Inches
SIZE = (4.4, 2.9)
LEGEND_GAP, LEGEND_LINE, LEGEND_CHARACTER, LEGEND_HANDLE = 0.12, 0.19, 0.075, 0.5

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


@dataclass(frozen=True)
class StudyFigure:
    """A figure of a study, with its texts."""

    name: str  # stem of its file
    title: str  # heading in the page
    caption: str  # what is plotted, and how uncertainty is shown
    figure: Figure  # the figure, without a legend of variants; the page has one for all figures
    names: Sequence[str] = ()  # variants, or models, that the figure does not name: those of its legend
    dashed: bool = False  # whether dash patterns distinguish the variants, else only markers do


def new_figure(height: float = SIZE[1]) -> tuple[Figure, Axes]:
    """Create a figure with one pair of axes; the height is in inches."""
    figure = Figure(figsize=(SIZE[0], height), layout="constrained")
    return figure, figure.add_subplot()


def label_variants(axes: Axes, variants: Iterable[str]) -> None:
    """Use one row of the axes for each variant, from the top."""
    names = [truncate(variant, MAX_NAME) for variant in variants]
    axes.set_yticks(range(len(names)), labels=names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def draw_estimate(axes: Axes, row: int, values: Sequence[float], mean: Estimate, style: VariantStyle) -> None:
    """Draw the values as small dots in a row of the axes, and their mean with its interval."""
    options: dict[str, Any] = {"color": style.colour, "clip_on": False}
    axes.plot(values, [row] * len(values), "o", alpha=0.35, markersize=3.6, **options)
    spread = None if mean.low is None or mean.high is None else error_bar(mean.mean, mean.low, mean.high)
    axes.errorbar(mean.mean, row, xerr=spread, fmt=style.marker, markersize=6, capsize=2.4, **options)


def error_bar(value: float, low: float, high: float) -> list[list[float]]:
    """Return the lengths of an error bar for matplotlib; a rounded mean can be outside its range."""
    return [[max(0, value - low)], [max(0, high - value)]]


def axis_label(metric: Metric, *, split: bool = False) -> str:
    """Return the label of a metric with its unit; see `_label`."""
    label = _label(metric, split=split)
    return f"{label}, in {metric.unit}" if metric.unit else label


def title_of(metric: Metric, *, split: bool = False) -> str:
    """Return the label of a metric, capitalised unless it contains capitals; see `_label`."""
    label = _label(metric, split=split)
    return label.capitalize() if label.islower() else label


def _label(metric: Metric, *, split: bool) -> str:
    """Return the label of a metric with the name of a test set, and with "(val)" only if `split`."""
    return metric.title if split or metric.split not in ("test", "val") else metric.label


def styles_of(study: Study) -> dict[str, VariantStyle]:
    """Return the style of each variant and model of a study; variants of a model have its style."""
    model_of = {variant: model for model, variants in study.models.items() for variant in variants.values()}
    names = dict.fromkeys(model_of.get(variant, variant) for variant in study.variants)
    styles = variant_styles([*names])
    return {**styles, **{variant: styles[model] for variant, model in model_of.items()}}


def write_figures(figures: Sequence[StudyFigure], styles: Styles, folder: Path) -> None:
    """Add a legend to each figure and write it as SVG and PDF files. Changes the figures."""
    for study_figure in figures:
        if study_figure.names:
            shown = {name: styles[name] for name in study_figure.names}
            with mpl.rc_context(fname=STYLE_SHEET):
                _add_legend(study_figure.figure, shown, dashed=study_figure.dashed)
        for suffix in ("svg", "pdf"):
            save(study_figure.figure, folder / f"{study_figure.name}.{suffix}")


def _add_legend(figure: Figure, styles: Styles, *, dashed: bool) -> None:
    width, height = figure.get_size_inches()
    names = [truncate(name, MAX_NAME) for name in styles]
    columns = max(1, int(width / (LEGEND_HANDLE + LEGEND_CHARACTER * max(map(len, names)))))
    legend = LEGEND_GAP + LEGEND_LINE * ceil(len(styles) / columns)
    figure.set_size_inches(width, height + legend)
    for axes in figure.axes:  # keep their size, above the legend
        left, bottom, right, top = axes.get_position().extents
        low, high = ((legend + height * end) / (height + legend) for end in (bottom, top))
        axes.set_position((left, low, right - left, high - low))
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, markersize=4.5, linestyle=line)
        for style in styles.values()
        for line in [style.dash if dashed else "none"]
    ]
    layout: dict[str, Any] = {"loc": "lower center", "ncols": columns, "columnspacing": 1.2}
    figure.legend(handles, names, handlelength=2.4 if dashed else 1, **layout)


def css_colour(style: VariantStyle) -> str:
    """Return the CSS variable of a variant's colour; page.css defines its light and dark value."""
    return f"var(--c{style.colour_index})"


def to_svg(figure: Figure, styles: Iterable[VariantStyle]) -> str:
    """Return a figure as an `<svg>` element with text as text, and colours as CSS variables of page.css."""
    buffer = io.StringIO()
    with mpl.rc_context(fname=STYLE_SHEET):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)  # duplicate ids across figures; nothing refers to them
    variables = {style.colour.lower(): css_colour(style) for style in styles}
    variables |= {INK: "currentColor", MUTED: "var(--muted)", RULE: "var(--rule)"}

    def substitute(attribute: re.Match[str]) -> str:
        text = attribute[0]
        for colour, variable in variables.items():
            text = text.replace(colour, variable)
        return text

    return re.sub(r'style="[^"]*"', substitute, svg)
