"""The figures of a study. Each variant has one colour, dash and mark in all of them.

Bands and bars run from the smallest to the largest seed where the caption says so, and else are 95 %
intervals of the mean over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import ceil, isfinite
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnlab.analysis.collect import RunRecord, Study
from attnlab.analysis.statistics import estimate
from attnlab.metrics import registry
from attnlab.plotting.files import save
from attnlab.plotting.style import INK, STYLE_SHEET, VariantStyle

Groups = Mapping[str, Sequence[RunRecord]]
Styles = Mapping[str, VariantStyle]
Band = list[tuple[float, float, float, float]]
"""(x, mean, lowest, highest) over seeds, by x."""

SIZE = (4.4, 2.9)  # inches
ROW = 0.3  # inches a variant, where variants are rows
LINE, LETTER, SWATCH = 0.19, 0.075, 0.5  # inches of a legend: a line, a letter, what stands before a name
POINTS = 300
"""A curve is drawn through no more points than that: more cannot be seen, and make a page large."""
BINS = 10


class Drawing(NamedTuple):
    """A figure of a study."""

    name: str  # of its file
    title: str
    caption: str
    figure: Figure
    dashed: bool = False
    """Whether variants are told apart by dashes; else by marks alone."""
    names: bool = True
    """Whether a legend must name the variants; else the figure does, or shows none."""


def draw(study: Study, styles: Styles) -> list[Drawing]:
    """Every figure that the finished runs have numbers for."""
    groups = study.by_variant()
    with mpl.rc_context(fname=STYLE_SHEET):
        return [
            drawing
            for found in (_scores, _by_length, _curves, _costs)
            for drawing in found(study, groups, styles)
        ]


def write(drawings: Sequence[Drawing], styles: Styles, folder: Path) -> None:
    """Write each as an SVG file for itself; the figures get a legend, which they share in a page."""
    for drawing in drawings:
        figure, path = drawing.figure, folder / f"{drawing.name}.svg"
        width, height = figure.get_size_inches()
        with mpl.rc_context(fname=STYLE_SHEET):
            if drawing.names:
                columns = max(1, int(width / (SWATCH + LETTER * max(map(len, styles)))))
                figure.set_size_inches(width, height + LINE * ceil(len(styles) / columns))
                figure.legend(
                    [_swatch(style, dashed=drawing.dashed) for style in styles.values()],
                    list(styles),
                    loc="outside lower center",
                    ncols=columns,
                    frameon=False,
                    handlelength=2.4 if drawing.dashed else 1,
                    columnspacing=1.2,
                )
        save(figure, path)


def _swatch(style: VariantStyle, *, dashed: bool) -> Line2D:
    line = style.dash if dashed else "none"
    return Line2D([], [], color=style.colour, linestyle=line, marker=style.marker, markersize=4.5)


def _scores(study: Study, groups: Groups, styles: Styles) -> Iterator[Drawing]:
    """A row for each variant: its seeds, their mean, and its interval."""
    for metric in study.metrics:
        figure, axes = _figure(height=0.75 + ROW * len(groups))
        axes.grid(visible=False, axis="y")
        for row, (variant, runs) in enumerate(groups.items()):
            style = styles[variant]
            values = [registry.scale(metric) * value for value in _values(runs, metric)]
            if not values:
                continue
            mean = estimate(values)
            axes.plot(values, [row] * len(values), "o", color=style.colour, alpha=0.35, markersize=3.5)
            axes.errorbar(
                mean.mean, row, xerr=mean.half_width, fmt=style.marker, color=style.colour, capsize=2.5
            )
        axes.set_yticks(range(len(groups)), labels=list(groups))
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.set_xlabel(_axis(metric))
        yield Drawing(
            f"scores-{registry.name(metric)}",
            f"{_title(metric)} by variant",
            "Small dots are seeds, marks their mean, bars its 95 % interval.",
            figure,
            names=False,
        )


def _curves(study: Study, groups: Groups, styles: Styles) -> Iterator[Drawing]:
    """What was logged on the way."""
    metrics = [f"val/{registry.name(metric)}" for metric in study.metrics[:1]]
    wanted = {
        "train/loss_epoch": "Training loss",
        "val/loss": "Validation loss",
        **{metric: f"{_title(metric)} on validation" for metric in metrics},
        "attention/entropy": "Entropy of attention",
        "attention/alignment_accuracy": "Alignment accuracy of attention",
        "lr-*": "Learning rate",
    }
    for metric, title in wanted.items():
        bands = {variant: _band(_series(runs, metric)) for variant, runs in groups.items()}
        if any(bands.values()):
            figure, axes = _figure()
            caption = "Over training; the mean over seeds, in a band from the smallest to the largest."
            same = len(bands) > 1 and all(band == next(iter(bands.values())) for band in bands.values())
            if same:
                x, mean = ([point[column] for point in next(iter(bands.values()))] for column in (0, 1))
                axes.plot(x, mean, color=INK)
                caption = "Over training; the same for all variants."
            else:
                _draw_bands(axes, bands, styles, scale=registry.scale(metric))
            axes.set_xlabel("step")
            axes.set_ylabel("learning rate" if metric == "lr-*" else _axis(metric))
            name = metric.replace("/", "-").strip("-*")
            yield Drawing(name, title, caption, figure, dashed=True, names=not same)


def _by_length(study: Study, groups: Groups, styles: Styles) -> Iterator[Drawing]:
    """The bottleneck figure: one vector holds a short sentence, and not a long one."""
    read = [run for runs in groups.values() for run in runs if run.predictions]
    metric = next((name for name in study.metrics if registry.sentence_counts(name) is not None), None)
    if metric is None or not read:
        return
    unit, lengths = _lengths([prediction.source for run in read for prediction in run.predictions])
    edges = range(min(lengths), max(lengths) + 1, ceil((max(lengths) - min(lengths) + 1) / BINS))
    bands = {}
    for variant, runs in groups.items():
        series = [_scores_by_length(run, metric, unit, edges) for run in runs if run.predictions]
        bands[variant] = _band(series)
    if len(edges) < 2 or not any(bands.values()):
        return
    figure, axes = _figure()
    _draw_bands(axes, bands, styles, scale=registry.scale(metric), marked=True)
    axes.set_xlabel(f"source length, in {unit}")
    axes.set_ylabel(_axis(metric))
    caption = "Of the test sentences of each length; the mean over seeds, from the smallest to the largest."
    yield Drawing("by-length", f"{_title(metric)} by source length", caption, figure, dashed=True)


def _costs(study: Study, groups: Groups, styles: Styles) -> Iterator[Drawing]:
    """Quality against what it costs."""
    costs: dict[str, tuple[str, Callable[[RunRecord], float | None]]] = {
        "time": ("time a training step, in ms", lambda run: _times(run.seconds_per_step, 1000)),
        "parameters": ("parameters, in thousands", lambda run: _times(run.parameters, 0.001)),
    }
    for metric in study.metrics[:1]:
        good = "down" if registry.better(metric) == "lower" else "up"
        for name, (label, cost) in costs.items():
            figure, axes = _figure()
            for variant, runs in groups.items():
                _draw_cost(axes, [(cost(run), run) for run in runs], metric, styles[variant])
            if not axes.has_data():
                continue
            axes.margins(0.12)
            axes.set_xlabel(label)
            axes.set_ylabel(_axis(metric))
            yield Drawing(
                f"cost-{name}",
                f"{_title(metric)} against {name}",
                f"The mean over seeds, from the smallest to the largest; {good} and to the left is better.",
                figure,
            )


def _draw_cost(
    axes: Axes, runs: Sequence[tuple[float | None, RunRecord]], metric: str, style: VariantStyle
) -> None:
    known = [(cost, run) for cost, run in runs if cost is not None and _values([run], metric)]
    if not known:
        return
    values = [registry.scale(metric) * value for value in _values([run for _, run in known], metric)]
    mean = fmean(values)
    spread = [[mean - min(values)], [max(values) - mean]]
    x = fmean(cost for cost, _ in known)
    axes.errorbar(x, mean, yerr=spread, fmt=style.marker, color=style.colour, capsize=2.5, markersize=6)


def _figure(height: float = SIZE[1]) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(SIZE[0], height), layout="constrained")
    return figure, figure.add_subplot()


def _draw_bands(
    axes: Axes, bands: Mapping[str, Band], styles: Styles, *, scale: float, marked: bool = False
) -> None:
    for variant, band in bands.items():
        if not band:
            continue
        style = styles[variant]
        x = [point[0] for point in band]
        mean, low, high = ([scale * point[column] for point in band] for column in (1, 2, 3))
        lone = marked or len(band) == 1
        # A mark on every line, so that it is known in grey: at its points, or at a few of them
        axes.plot(
            x,
            mean,
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            markersize=4.5,
            markevery=1 if lone else max(1, len(x) // 6),
        )
        if high != low:
            axes.fill_between(x, low, high, color=style.colour, alpha=0.14, linewidth=0)


def _series(runs: Sequence[RunRecord], pattern: str) -> list[dict[float, float]]:
    """Of each run that logged a metric of such a name, the value at each step."""
    found = []
    for run in runs:
        key = next((name for name in run.series if fnmatchcase(name, pattern)), "")
        values = {float(step): value for step, value in run.series.get(key, []) if isfinite(value)}
        if values:
            found.append(values)
    return found


def _band(series: Sequence[Mapping[float, float]]) -> Band:
    """Mean and range at the x that all of them have, thinned out."""
    shared = sorted(set.intersection(*(set(values) for values in series))) if series else []
    thinned = shared[:: ceil(len(shared) / POINTS)] if shared else []
    columns = ((x, [values[x] for values in series]) for x in thinned)
    return [(x, fmean(values), min(values), max(values)) for x, values in columns]


def _lengths(sources: Sequence[str]) -> tuple[str, list[int]]:
    """The unit of these sources' lengths, and the lengths: words, unless none has more than one."""
    words = [len(source.split()) for source in sources]
    return ("words", words) if max(words) > 1 else ("characters", [len(source) for source in sources])


def _scores_by_length(run: RunRecord, metric: str, unit: str, edges: range) -> dict[float, float]:
    """The corpus score of the sentences in each range of lengths, by the middle of the range."""
    score = registry.sentence_counts(metric)
    assert score is not None
    counts = score.count(
        [prediction.hypothesis for prediction in run.predictions],
        [prediction.reference for prediction in run.predictions],
    )
    rows: dict[float, list[int]] = {}
    for row, prediction in enumerate(run.predictions):
        length = len(prediction.source.split()) if unit == "words" else len(prediction.source)
        place = (length - edges.start) // edges.step
        rows.setdefault(edges.start + place * edges.step + (edges.step - 1) / 2, []).append(row)
    words = [len(prediction.reference.split()) for prediction in run.predictions]
    shortest = 4 if registry.name(metric).endswith("bleu") else 0  # BLEU of shorter ones is 0, right or wrong
    return {
        middle: score.value(counts[chosen].sum(axis=0))
        for middle, chosen in sorted(rows.items())
        if max(words[row] for row in chosen) >= shortest
    }


def _values(runs: Sequence[RunRecord], metric: str) -> list[float]:
    return [run.scores[metric] for run in runs if isfinite(run.scores.get(metric, float("nan")))]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _axis(metric: str) -> str:
    """The label of an axis: what, and in which unit."""
    unit = registry.unit(metric)
    return f"{_called(metric)}, in {unit}" if unit else _called(metric)


def _title(metric: str) -> str:
    """What a metric is called at the beginning of a sentence."""
    called = _called(metric)
    return called.capitalize() if called.islower() else called


def _called(metric: str) -> str:
    """What a metric is called, whichever split it is of."""
    return registry.label(f"test/{registry.name(metric)}")
