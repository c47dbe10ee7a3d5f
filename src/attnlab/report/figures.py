"""Figures of a study. A variant has the same colour, dash pattern and marker in all of them.

Error bars and bands are stated in each caption: the range over seeds, or the 95 % interval of the mean.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from math import ceil, isfinite
from pathlib import Path
from statistics import fmean

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from attnlab.metrics import registry
from attnlab.metrics.text.ngrams import MIN_BLEU_TOKENS
from attnlab.report.aggregates import performance_profile, score_matrices, stratified_bootstrap
from attnlab.report.drawing import (
    StudyFigure,
    Styles,
    axis_label,
    draw_estimate,
    error_bar,
    label_of,
    label_variants,
    new_figure,
    title_of,
    write_figures,
)
from attnlab.report.files import fix_layout
from attnlab.report.statistics import estimate
from attnlab.report.study import RunRecord, Study, noun_of
from attnlab.report.style import INK, STYLE_SHEET, variant_styles

Band = list[tuple[float, float, float, float]]
"""(x, mean, minimum, maximum) over seeds, sorted by x."""

Groups = Mapping[str, Sequence[RunRecord]]
"""Finished runs by variant."""

ROW_HEIGHT = 0.3  # inches per variant, in figures with one row per variant
MAX_POINTS = 300  # points per curve; more are not visible and make the page large
MAX_BINS = 10  # ranges of source lengths


def draw_figures(study: Study, styles: Styles) -> list[StudyFigure]:
    """Draw every figure for which the finished runs have data."""
    groups = study.by_variant()
    kinds = (_final_scores, _performance_profile, _scores_by_length, _training_curves, _costs)
    with mpl.rc_context(fname=STYLE_SHEET):
        drawn = [figure for draw in kinds for figure in draw(study, groups, styles)]
        for study_figure in drawn:
            fix_layout(study_figure.figure)
    return drawn


def write_figure(study: Study, name: str, folder: Path) -> None:
    """Draw and write only the figure of this name."""
    styles = variant_styles(study.variants)
    chosen = [figure for figure in draw_figures(study, styles) if figure.name == name]
    write_figures(chosen, styles, folder)


def _final_scores(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    """Draw one row per variant with its seeds, their mean and its interval."""
    several_splits = len({registry.split(metric) == "val" for metric in study.metrics}) > 1
    for metric in study.metrics:
        scale = registry.metric(metric).scale
        low, high = (scale * end for end in registry.metric(metric).bounds)
        figure, axes = new_figure(height=0.75 + ROW_HEIGHT * len(groups))
        for row, (variant, runs) in enumerate(groups.items()):
            if scores := [scale * score for run in runs if (score := run.score(metric)) is not None]:
                draw_estimate(axes, row, scores, estimate(scores, (low, high)), styles[variant])
        label_variants(axes, groups)
        left, right = axes.get_xlim()
        axes.set_xlim(max(left, low), min(right, high))
        axes.set_xlabel(axis_label(metric, split=several_splits))
        name = metric.removeprefix("test/")
        yield StudyFigure(
            f"scores-{(name if several_splits else name.removeprefix('val/')).replace('/', '-')}",
            f"{title_of(metric, split=several_splits)} by variant",
            "Small dots are seeds, large markers their mean, bars its 95\u00a0% interval, on a transformed "
            "scale for scores with bounds.",
            figure,
            needs_legend=False,
        )


def _performance_profile(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    """Draw the share of runs whose score is above each threshold (rliable), if a variant has enough runs."""
    tasks, matrices = score_matrices(study)
    matrices = {variant: scores for variant, scores in matrices.items() if len(scores)}
    if not matrices:
        return
    scores = np.concatenate([scores.ravel() for scores in matrices.values()])
    thresholds = np.linspace(scores.min(), scores.max(), MAX_POINTS)
    profile = partial(performance_profile, thresholds=thresholds)
    x, (figure, axes) = registry.metric(tasks[0]).scale * thresholds, new_figure()
    for variant, scores in matrices.items():
        style = styles[variant]
        axes.plot(x, 100 * profile(scores), color=style.colour, linestyle=style.dash, drawstyle="steps-post")
        low, high = stratified_bootstrap(profile, scores)
        axes.fill_between(x, 100 * low, 100 * high, color=style.colour, alpha=0.14, linewidth=0, step="post")
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"threshold of {axis_label(tasks[0])}")
    axes.set_ylabel("runs above the threshold, in %")
    caption = (
        "Share of runs with a score above each threshold; bands are 95\u00a0% stratified bootstrap intervals."
    )
    title = f"Performance profile of {label_of(tasks[0])}"
    yield StudyFigure("performance-profile", title, caption, figure, dashed=True)


def _scores_by_length(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    """Draw a corpus score by source length, which shows the bottleneck of a fixed-size encoding."""
    metric = next(
        (
            name
            for name in study.metrics
            if all(registry.metric(name).sentence_counts(run.tokenizer(name)) for run in study.finished)
        ),
        None,
    )
    if metric is None:
        return
    split = registry.split(metric)
    decoded = {
        variant: [run for run in runs if run.predictions.get(split)] for variant, runs in groups.items()
    }
    sources = [each.source for runs in decoded.values() for run in runs for each in run.predictions[split]]
    if not sources:
        return
    unit, lengths = _source_lengths(sources)
    edges = range(min(lengths), max(lengths) + 1, ceil((max(lengths) - min(lengths) + 1) / MAX_BINS))
    bands = {
        variant: _band([_bin_scores(run, metric, unit, edges) for run in runs])
        for variant, runs in decoded.items()
    }
    if len(edges) < 2 or not any(bands.values()):
        return
    figure, axes = new_figure()
    _draw_bands(axes, bands, styles, scale=registry.metric(metric).scale, mark_all=True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    noun = noun_of(sources)
    axes.set_xlabel(f"source length, in {'tokens' if unit == 'words' and noun == 'inputs' else unit}")
    axes.set_ylabel(axis_label(metric))
    inputs = f"{'Validation' if split == 'val' else 'Test'} {noun}"
    caption = f"{inputs} grouped by source length; mean over seeds, bands from minimum to maximum."
    yield StudyFigure("by-length", f"{title_of(metric)} by source length", caption, figure, dashed=True)


def _training_curves(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    main = [f"val/{registry.name(metric)}" for metric in study.metrics[:1]]
    titles = {
        "train/loss_epoch": "Training loss",
        "val/loss": "Validation loss",
        **{metric: f"{title_of(metric)} on the validation split" for metric in main},
        "attention/entropy": "Attention entropy",
        "attention/alignment_accuracy": "Alignment accuracy of attention",
        "lr-*": "Learning rate",
    }
    for metric, title in titles.items():
        bands = {variant: _band(_logged_values(runs, metric)) for variant, runs in groups.items()}
        if not any(bands.values()):
            continue
        figure, axes = new_figure()
        first = next(iter(bands.values()))
        identical = len(bands) > 1 and all(band == first for band in bands.values())
        if identical:
            scale = registry.metric(metric).scale
            axes.plot([point[0] for point in first], [scale * point[1] for point in first], color=INK)
            caption = "During training; identical for all variants."
        else:
            _draw_bands(axes, bands, styles, scale=registry.metric(metric).scale)
            caption = "During training; mean over seeds, bands from minimum to maximum."
        axes.set_xlabel("step")
        axes.set_ylabel("learning rate" if metric == "lr-*" else axis_label(metric))
        name = metric.replace("/", "-").strip("-*")
        yield StudyFigure(name, title, caption, figure, dashed=True, needs_legend=not identical)


def _costs(study: Study, groups: Groups, styles: Styles) -> Iterator[StudyFigure]:
    costs: dict[str, tuple[str, str, float, Callable[[RunRecord], float | None]]] = {
        "time": ("time per step", "time per training step, in ms", 1000, lambda run: run.seconds_per_step),
        "parameters": ("model size", "parameters, in thousands", 0.001, lambda run: run.parameters),
    }
    for metric in study.metrics[:1]:
        corner = {"lower": "; the lower left is better", "higher": "; the upper left is better"}
        best = corner.get(str(registry.metric(metric).direction), "")
        for name, (title, label, factor, cost) in costs.items():
            figure, axes = new_figure()
            for variant, runs in groups.items():
                style = styles[variant]
                points = [
                    (factor * value, registry.metric(metric).scale * score)
                    for run in runs
                    if (value := cost(run)) is not None and (score := run.score(metric)) is not None
                ]
                if points:
                    x, y = (fmean(column) for column in zip(*points, strict=True))
                    scores = [score for _, score in points]
                    spread = error_bar(y, min(scores), max(scores))
                    axes.errorbar(x, y, spread, fmt=style.marker, color=style.colour, capsize=2.5)
            if not axes.has_data():
                continue
            axes.margins(0.12)
            axes.set_xlabel(label)
            axes.set_ylabel(axis_label(metric))
            yield StudyFigure(
                f"cost-{name}",
                f"{title_of(metric)} and {title}",
                f"Mean over seeds, bars from minimum to maximum{best}.",
                figure,
            )


def _draw_bands(
    axes: Axes, bands: Mapping[str, Band], styles: Styles, *, scale: float, mark_all: bool = False
) -> None:
    """Draw means as lines and ranges as bands; a few markers identify the lines without colour."""
    for variant, band in bands.items():
        if not band:
            continue
        style = styles[variant]
        x = [point[0] for point in band]
        mean, low, high = ([scale * point[column] for point in band] for column in (1, 2, 3))
        axes.plot(
            x,
            mean,
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            markersize=4.5,
            markevery=1 if mark_all else max(1, len(x) // 6),
        )
        if high != low:
            axes.fill_between(x, low, high, color=style.colour, alpha=0.14, linewidth=0)


def _logged_values(runs: Sequence[RunRecord], pattern: str) -> list[dict[float, float]]:
    """Return {step: value} for each run that logged a metric matching the pattern."""
    curves = []
    for run in runs:
        metric = next((name for name in run.series if fnmatchcase(name, pattern)), "")
        values = {float(step): value for step, value in run.series.get(metric, []) if isfinite(value)}
        if values:
            curves.append(values)
    return curves


def _band(series: Sequence[Mapping[float, float]]) -> Band:
    """Return mean and range at the x that all series share, thinned out to `MAX_POINTS`."""
    shared = sorted(set.intersection(*(set(values) for values in series))) if series else []
    thinned = shared[:: ceil(len(shared) / MAX_POINTS)] if shared else []
    columns = ((x, [values[x] for values in series]) for x in thinned)
    return [(x, fmean(values), min(values), max(values)) for x, values in columns]


def _source_lengths(sources: Sequence[str]) -> tuple[str, list[int]]:
    """Return the unit ("words", or "characters" if no source has several words) and the lengths."""
    words = [len(source.split()) for source in sources]
    return ("words", words) if max(words) > 1 else ("characters", [len(source) for source in sources])


def _bin_scores(run: RunRecord, metric: str, unit: str, edges: range) -> dict[float, float]:
    """Return the corpus score of the sentences in each bin of source lengths, by the centre of the bin.

    Bins without a reference of four tokens do not define BLEU and are omitted.
    """
    predictions = run.predictions[registry.split(metric)]
    score = registry.metric(metric).sentence_counts(run.tokenizer(metric))
    assert score is not None
    shortest = MIN_BLEU_TOKENS if registry.name(metric).endswith("bleu") else 0
    counts = score.count(predictions)
    bins: dict[float, list[int]] = {}
    for row, prediction in enumerate(predictions):
        length = len(prediction.source.split()) if unit == "words" else len(prediction.source)
        index = (length - edges.start) // edges.step
        bins.setdefault(edges.start + index * edges.step + (edges.step - 1) / 2, []).append(row)
    return {
        centre: float(score.value(counts[rows].sum(axis=0)))
        for centre, rows in sorted(bins.items())
        if not shortest or counts[rows][:, 1].max() >= shortest
    }
