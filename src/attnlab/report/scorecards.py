"""Scorecards of attention weights in a report: a table and small multiples for each kind of evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.metrics import registry
from attnlab.plotting.style import STYLE_SHEET
from attnlab.plotting.text import truncate
from attnlab.report import tables
from attnlab.report.figure_parts import MAX_NAME, StudyFigure, Styles, title_of
from attnlab.report.scorecard_files import Scorecard, read_scorecards
from attnlab.report.statistics import Estimate, estimate
from attnlab.report.study import Study
from attnlab.report.table import Cell, Column, Table

COLUMNS = 3
PANEL = (2.2, 0.65)  # inches: width, and height without variants
ROW_HEIGHT = 0.2  # inches per variant

NOTE = (
    "Attention weights as explanations, by attnlab evaluate RUN explain=all. Mean over seeds [95 % "
    "confidence interval]; of a single run, the interval over sentences."
)
CAPTION = (
    "Small dots are seeds, large markers their mean, bars its 95\u00a0% interval; of a single run, the "
    "interval over sentences. Hollow markers: tokens drawn at random."
)
RANDOM = "_random"
"""End of the names of measures that are drawn beside another one."""
NOT_DRAWN = (RANDOM, "_error")


@dataclass(frozen=True)
class Evaluation:
    """Scorecards of the runs of a study that were evaluated in the same way.

    Attributes:
        title: split, and settings that differ from those of the runs.
        study: the runs; their scores are those of the scorecards.
        cards: the scorecard of each run of the study, in their order.
    """

    title: str
    study: Study
    cards: list[Scorecard]

    def estimates(self, metric: str) -> dict[str, tuple[Estimate, list[float]]]:
        """Return the mean, and the values, of each variant that has the measure."""
        result = {}
        for variant in self.study.variants:
            cards = [
                card
                for run, card in zip(self.study.runs, self.cards, strict=True)
                if run.variant == variant and metric in card.scores
            ]
            values = [card.scores[metric] for card in cards]
            if not values:
                continue
            mean = estimate(values, registry.bounds(metric))
            if len(values) == 1 and metric in cards[0].intervals:
                low, high = cards[0].intervals[metric]
                mean = replace(mean, low=low, high=high)
            result[variant] = mean, values
        return result


def gather(study: Study) -> list[Evaluation]:
    """Read the scorecards of the finished runs; an empty list if there are none.

    Several scorecards of a run with the same settings, such as those of different measures, are one; of a
    measure that several contain, the newest value counts.
    """
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], dict[Path, Scorecard]] = {}
    for run in study.finished:
        for card in read_scorecards(run.directory):
            if card.scores:
                cards = groups.setdefault((card.split, card.overrides, card.settings), {})
                cards[run.directory] = _merge(cards.get(run.directory, card), card)
    counts = Counter((split, overrides) for split, overrides, _ in groups)
    evaluations = []
    for (split, overrides, settings), cards in sorted(groups.items()):
        evaluated = [run for run in study.finished if run.directory in cards]
        runs = [replace(run, scores=cards[run.directory].scores) for run in evaluated]
        available = {metric for run in runs for metric in run.scores}
        metrics = [f"{split}/{name}" for name in registry.names("explanation")]
        selected = tuple(metric for metric in metrics if metric in available)
        title = " ".join((split, *overrides, *(settings if counts[split, overrides] > 1 else ())))
        members = [cards[run.directory] for run in evaluated]
        evaluations.append(Evaluation(title, Study(study.name, runs, selected), members))
    return evaluations


def _merge(older: Scorecard, newer: Scorecard) -> Scorecard:
    """Return the newer scorecard with the measures that only the older one has."""
    kept = {metric: ends for metric, ends in older.intervals.items() if metric not in newer.scores}
    return newer._replace(scores=older.scores | newer.scores, intervals=kept | newer.intervals)


def build(evaluations: Sequence[Evaluation]) -> list[Table]:
    """Build a table with one row per variant for each evaluation."""
    result = []
    for number, evaluation in enumerate(evaluations, start=1):
        metrics = evaluation.study.metrics
        estimates = {metric: evaluation.estimates(metric) for metric in metrics}
        groups = evaluation.study.by_variant()
        rows = [
            [
                Cell(variant, variant),
                Cell(str(len(runs)), len(runs)),
                *(_cell(metric, estimates[metric].get(variant)) for metric in metrics),
            ]
            for variant, runs in groups.items()
        ]
        columns = [
            Column("variant", numeric=False),
            Column("runs"),
            *(Column(tables.heading(metric)) for metric in metrics),
        ]
        title = f"Attention weights as explanations: {evaluation.title}"
        result.append(Table(_name(number), title, columns, rows, [NOTE]))
    return result


def draw(evaluations: Sequence[Evaluation], styles: Styles) -> list[StudyFigure]:
    """Draw a figure with one panel per measure for each evaluation."""
    with mpl.rc_context(fname=STYLE_SHEET):
        return [
            StudyFigure(
                _name(number),
                f"Attention weights as explanations: {evaluation.title}",
                CAPTION,
                _figure(evaluation, styles),
                needs_legend=False,
            )
            for number, evaluation in enumerate(evaluations, start=1)
            if _drawn(evaluation)
        ]


def _drawn(evaluation: Evaluation) -> list[str]:
    """Return the measures that have a panel."""
    return [metric for metric in evaluation.study.metrics if not metric.endswith(NOT_DRAWN)]


def _figure(evaluation: Evaluation, styles: Styles) -> Figure:
    metrics = _drawn(evaluation)
    variants = evaluation.study.variants
    rows = ceil(len(metrics) / COLUMNS)
    height = rows * (PANEL[1] + ROW_HEIGHT * len(variants))
    figure = Figure(figsize=(COLUMNS * PANEL[0], height), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False).ravel()
    for axes, metric in zip(panels, metrics, strict=False):
        _draw_panel(axes, metric, evaluation, variants, styles)
    for axes in panels[len(metrics) :]:
        axes.set_visible(False)
    panels[0].set_yticks(range(len(variants)), labels=[truncate(name, MAX_NAME) for name in variants])
    panels[0].set_ylim(len(variants) - 0.4, -0.6)
    return figure


def _draw_panel(
    axes: Axes, metric: str, evaluation: Evaluation, variants: Sequence[str], styles: Styles
) -> None:
    scale = registry.scale(metric)
    for variant, (at_random, _) in evaluation.estimates(metric + RANDOM).items():
        row, style = variants.index(variant), styles[variant]
        axes.plot(
            scale * at_random.mean, row, style.marker, color=style.colour, markersize=4, fillstyle="none"
        )
    for variant, (mean, values) in evaluation.estimates(metric).items():
        row, style = variants.index(variant), styles[variant]
        points = [scale * value for value in values]
        axes.plot(points, [row] * len(points), "o", color=style.colour, alpha=0.35, markersize=3)
        spread = None
        if mean.low is not None and mean.high is not None:
            spread = [[scale * max(0, mean.mean - mean.low)], [scale * max(0, mean.high - mean.mean)]]
        axes.errorbar(
            scale * mean.mean, row, xerr=spread, fmt=style.marker, color=style.colour, markersize=4, capsize=2
        )
    unit = registry.unit(metric)
    title = title_of(metric).replace("Τ", "τ")  # a capital τ looks like a T
    axes.set_title(f"{title}{f', {unit}' if unit else ''}", fontsize=6.5)
    axes.tick_params(labelsize=6.5)
    axes.grid(visible=False, axis="y")


def _cell(metric: str, found: tuple[Estimate, list[float]] | None) -> Cell:
    if found is None:
        return Cell(tables.MISSING)
    return tables.estimate_cell(found[0], digits=registry.digits(metric), scale=registry.scale(metric))


def _name(number: int) -> str:
    return "explanations" if number == 1 else f"explanations-{number}"
