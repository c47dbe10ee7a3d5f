"""Figures of a study. A variant has the same colour, dash pattern and marker in all of them.

Error bars and bands are stated in each caption: the range over seeds, or the 95 % interval of the mean.
"""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, nan
from pathlib import Path
from statistics import fmean, median
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from attnlab.metrics import registry
from attnlab.metrics.registry import Metric
from attnlab.metrics.text.ngrams import MIN_BLEU_TOKENS
from attnlab.report.files import fix_layout, save
from attnlab.report.record import RunRecord
from attnlab.report.statistics import estimate
from attnlab.report.study import Study, noun_of, scores_of
from attnlab.report.style import INK, MUTED, RULE, STYLE_SHEET, VariantStyle, variant_styles
from attnlab.report.text import LabelFonts, truncate
from attnlab.report.variants import SEPARATOR, sort_key

Styles = Mapping[str, VariantStyle]

MAX_NAME = 30  # characters of a variant's name in a figure

# Inches
SIZE = (4.4, 2.9)
LEGEND_CHARACTER, LEGEND_HANDLE = 0.075, 0.5

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

Groups = Mapping[str, Sequence[RunRecord]]  # Finished runs by variant
ROW_HEIGHT = 0.3  # inches per variant, in figures with one row per variant
MAX_POINTS = 300  # points per curve; more are not visible and make the page large


@dataclass(frozen=True)
class StudyFigure:
    """A figure of a study, with its texts."""

    name: str  # stem of its file
    title: str  # heading in the page
    caption: str  # what is plotted, and how uncertainty is shown
    figure: Figure  # the figure, without a legend of variants; the page has one for all figures
    names: Sequence[str] = ()  # variants, or models, that the figure does not name: those of its legend
    dashed: bool = False  # whether dash patterns distinguish the variants, else only markers do


def draw_figures(study: Study, styles: Styles) -> list[StudyFigure]:
    """Draw every figure for which the finished runs have data.

    With several data sets, the scores of models that were trained on several ones are drawn over the data
    sets, and those of other variants for each data set; there are no curves.
    """
    kinds = [_final_scores, _scores_by_length]
    if len(study.parts) == 1:
        kinds.append(_training_curves)
    with mpl.rc_context(fname=STYLE_SHEET):
        drawn = [*_scores_by_data(study, styles)]
        for part in study.parts:
            if any(part.data in variants for variants in study.models.values()):
                continue
            groups = part.by_variant()
            for figure in (figure for draw in kinds for figure in draw(part, groups, styles)):
                drawn.append(replace(figure, name=figure.name + part.suffix, title=part.titled(figure.title)))
        for study_figure in drawn:
            fix_layout(study_figure.figure)
    return drawn


def _final_scores(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    """Draw one row per variant with its seeds, their mean and its interval."""
    for metric in map(registry.metric, study.metrics):
        low, high = (metric.scale * end for end in metric.bounds)
        figure, axes = new_figure(height=0.75 + ROW_HEIGHT * len(groups))
        for row, (variant, runs) in enumerate(groups.items()):
            if not (scores := _scores(runs, metric)):
                continue
            style, mean = styles[variant], estimate(scores, (low, high))
            options: dict[str, Any] = {"color": style.colour, "clip_on": False}
            axes.plot(scores, [row] * len(scores), "o", alpha=0.35, markersize=3.6, **options)
            spread = (
                None if mean.low is None or mean.high is None else _error_bar(mean.mean, mean.low, mean.high)
            )
            axes.errorbar(mean.mean, row, xerr=spread, fmt=style.marker, markersize=6, capsize=2.4, **options)
        label_ticks(axes.yaxis, groups)
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        left, right = axes.get_xlim()
        axes.set_xlim(max(left, low), min(right, high))
        axes.set_xlabel(_axis_label(metric))
        yield StudyFigure(
            f"scores-{_stem(metric)}",
            f"{_title(metric)} by variant",
            "Small dots are seeds, large markers their mean, bars its 95\u00a0% interval, on a transformed "
            "scale for scores with bounds.",
            figure,
        )


def _scores_by_data(study: Study, styles: Styles) -> Iterator[StudyFigure]:
    """Draw the scores of the models over the data sets, such as languages or lengths, for each metric."""
    trained_on = {data for variants in study.models.values() for data in variants}
    names = [part.data for part in study.parts if part.data in trained_on]
    settings, values = zip(*(name.rpartition("=")[::2] for name in names), strict=True) if names else ((), ())
    one_setting = len({*settings}) == 1 and SEPARATOR not in "".join(names)
    ticks = values if one_setting else names
    in_order = one_setting and all(sort_key(tick) < (inf,) for tick in ticks)
    shifts = [0.0] * len(study.models) if in_order else np.linspace(-0.15, 0.15, len(study.models)).tolist()
    groups = study.by_variant()
    for metric in map(registry.metric, study.metrics if names else ()):
        figure, axes = new_figure()
        for (model, variants), shift in zip(study.models.items(), shifts, strict=True):
            scores = [_scores(groups.get(variants.get(name, ""), []), metric) for name in names]
            points = [(x + shift, fmean(each), each) for x, each in enumerate(scores) if each]
            if points:
                x, means, _ = zip(*points, strict=True)
                spreads = [_error_bar(mean, min(each), max(each)) for _, mean, each in points]
                style = styles[model]
                axes.errorbar(
                    x,
                    means,
                    np.concatenate(spreads, axis=1),
                    fmt=style.marker,
                    color=style.colour,
                    linestyle=style.dash if in_order else "none",
                    markersize=4.5,
                    capsize=2.4,
                )
        if not axes.has_data():
            continue
        label_ticks(axes.xaxis, ticks)
        if max(map(len, ticks)) * len(ticks) > 40:
            axes.tick_params(axis="x", labelrotation=45, labelrotation_mode="xtick")
        axes.set_xlim(-0.5, len(ticks) - 0.5)
        axes.set_xlabel(settings[0] if one_setting else "data")
        axes.set_ylabel(_axis_label(metric))
        yield StudyFigure(
            f"by-data-{_stem(metric)}",
            f"{_title(metric)} by data set",
            "Mean over seeds, bars from minimum to maximum.",
            figure,
            names=[*study.models] if len(study.models) > 1 else [],
            dashed=in_order,
        )


def label_ticks(axis: Axis, names: Iterable[str]) -> None:
    """Put a tick with its name at 0, 1, …, in fonts that have its characters."""
    labels = short_names(names)
    fonts = LabelFonts(labels)
    axis.set_ticks(range(len(labels)), labels=[*map(fonts.drawable, labels)])
    fonts.apply(*axis.get_ticklabels())


def _scores(runs: Sequence[RunRecord], metric: Metric) -> list[float]:
    """Return the scores of the runs that have the metric, in its unit."""
    return [metric.scale * score for _, score in scores_of(runs, metric.logged)]


def _scores_by_length(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    """Draw a corpus score by source length, which shows the bottleneck of a fixed-size encoding."""
    counted = (
        metric
        for metric in map(registry.metric, study.metrics)
        if all(metric.sentence_counts(run.tokenizer(metric.logged)) for run in study.finished)
    )
    if (metric := next(counted, None)) is None:
        return
    split = metric.split
    decoded = {
        variant: [run for run in runs if run.predictions.get(split)] for variant, runs in groups.items()
    }
    sources = [
        each.columns[0] for runs in decoded.values() for run in runs for each in run.predictions[split]
    ]
    if not sources:
        return
    # Characters if most sources are one word
    is_word = median(map(_words, sources)) == 1
    unit, length = ("characters", len) if is_word else ("words", _words)
    bands = {
        variant: _band([_bin_scores(run, metric, length) for run in runs])
        for variant, runs in decoded.items()
    }
    if max(map(len, bands.values())) < 2:
        return
    figure, axes = new_figure()
    _draw_bands(axes, bands, styles, scale=metric.scale, mark_all=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    noun = noun_of(sources)
    axes.set_xlabel(f"source length, in {'tokens' if unit == 'words' and noun == 'inputs' else unit}")
    axes.set_ylabel(_axis_label(metric))
    inputs = f"{'Validation' if split == 'val' else 'Test'} {noun}"
    caption = f"{inputs} grouped by source length; mean over seeds where all have a value, and range."
    yield StudyFigure(
        "by-length", f"{_title(metric)} by source length", caption, figure, names=[*groups], dashed=True
    )


def _training_curves(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    main = [f"val/{registry.name(metric)}" for metric in study.metrics[:1]]
    names = ("train/loss_epoch", "val/loss", *main, "attention/entropy", "attention/alignment_accuracy")
    for name in dict.fromkeys(names):
        bands = {
            variant: _band([dict(run.series[name]) for run in runs if name in run.series])
            for variant, runs in groups.items()
        }
        if not all(band.empty for band in bands.values()):
            figure, axes = new_figure()
            metric = registry.metric(name)
            _draw_bands(axes, bands, styles, scale=metric.scale)
            axes.set_xlabel("step")
            axes.set_ylabel(_axis_label(metric))
            caption = "During training; mean over seeds where all have a value, and range."
            stem, title = name.replace("/", "-"), _title(metric)
            yield StudyFigure(stem, title, caption, figure, names=[*groups], dashed=True)


def _draw_bands(
    axes: Axes, bands: Mapping[str, pd.DataFrame], styles: Styles, *, scale: float, mark_all: bool = False
) -> None:
    """Draw means as lines and ranges as bands; a few markers identify the lines without colour."""
    for variant, band in bands.items():
        if band.empty:
            continue
        style, x, scaled = styles[variant], [*band.index], scale * band
        axes.plot(
            x,
            scaled["mean"],
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            markersize=4.5,
            markevery=1 if mark_all else max(1, len(x) // 6),
        )
        if not scaled["min"].equals(scaled["max"]):
            axes.fill_between(x, scaled["min"], scaled["max"], color=style.colour, alpha=0.14, linewidth=0)


def _band(series: Sequence[Mapping[float, float]]) -> pd.DataFrame:
    """Return `mean`, `min` and `max` at the x at which all series are finite, at most `MAX_POINTS`."""
    finite = pd.DataFrame({row: pd.Series(values, dtype=float) for row, values in enumerate(series)})
    finite = finite.replace([inf, -inf], nan).dropna(axis=1, how="all").dropna().sort_index()
    return finite[:: ceil(len(finite) / MAX_POINTS) or 1].agg(["mean", "min", "max"], axis=1)


def short_names(names: Iterable[str]) -> list[str]:
    """Return names of at most `MAX_NAME` characters; in full where they would be equal."""
    short = {name: truncate(name, MAX_NAME) for name in names}
    counts = Counter(short.values())
    return [label if counts[label] == 1 else name for name, label in short.items()]


def _words(text: str) -> int:
    return len(text.split())


def _bin_scores(run: RunRecord, metric: Metric, length: Callable[[str], int]) -> dict[float, float]:
    """Return the corpus score of the sentences in each bin of source lengths, by the centre of the bin.

    Bins without a reference of four tokens do not define BLEU and are omitted.
    """
    predictions = run.predictions[metric.split]
    score = metric.sentence_counts(run.tokenizer(metric.logged))
    assert score is not None
    shortest = MIN_BLEU_TOKENS if metric.name.endswith("bleu") else 0
    counts = score.count(predictions)
    return {
        (low + high) / 2: float(score.value(counts[rows].sum(axis=0)))
        for low, high, rows in registry.length_bins([length(each.columns[0]) for each in predictions])
        if not shortest or counts[rows][:, 1].max() >= shortest
    }


def new_figure(height: float = SIZE[1]) -> tuple[Figure, Axes]:
    """Create a figure with one pair of axes; the height is in inches."""
    figure = Figure(figsize=(SIZE[0], height), layout="constrained")
    return figure, figure.add_subplot()


def _error_bar(value: float, low: float, high: float) -> list[list[float]]:
    """Return the lengths of an error bar for matplotlib; a rounded mean can be outside its range."""
    return [[max(0, value - low)], [max(0, high - value)]]


def _axis_label(metric: Metric) -> str:
    return f"{metric.title}, in {metric.unit}" if metric.unit else metric.title


def _title(metric: Metric) -> str:
    """Return the title of a metric, capitalised if it is lower case."""
    return metric.title.capitalize() if metric.title.islower() else metric.title


def _stem(metric: Metric) -> str:
    return metric.logged.removeprefix("test/").replace("/", "-")


def styles_of(study: Study) -> dict[str, VariantStyle]:
    """Return the style of each variant and model of a study; variants of a model have its style."""
    model_of = {variant: model for model, variants in study.models.items() for variant in variants.values()}
    names = dict.fromkeys(model_of.get(variant, variant) for variant in study.variants)
    styles = variant_styles([*names])
    return {**styles, **{variant: styles[model] for variant, model in model_of.items()}}


def write_figures(figures: Sequence[StudyFigure], styles: Styles, folder: Path) -> None:
    """Add a legend below each figure and write it as SVG and PDF files. Changes the figures."""
    for each in figures:
        if each.names:
            with mpl.rc_context(fname=STYLE_SHEET):
                _add_legend(each.figure, {name: styles[name] for name in each.names}, dashed=each.dashed)
        for suffix in ("svg", "pdf"):
            save(each.figure, folder / f"{each.name}.{suffix}", bbox_inches="tight")  # with the legend


def _add_legend(figure: Figure, styles: Styles, *, dashed: bool) -> None:
    names = short_names(styles)
    fonts = LabelFonts(names)
    width = LEGEND_HANDLE + LEGEND_CHARACTER * max(map(len, names))
    handles = [
        Line2D([], [], color=style.colour, marker=style.marker, markersize=4.5, linestyle=line)
        for style in styles.values()
        for line in [style.dash if dashed else "none"]
    ]
    legend = figure.legend(
        handles,
        [*map(fonts.drawable, names)],
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        ncols=max(1, int(SIZE[0] / width)),
        columnspacing=1.2,
        handlelength=2.4 if dashed else 1,
    )
    fonts.apply(*legend.get_texts())


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
