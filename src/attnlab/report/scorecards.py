"""Scorecards of attention weights that `attnlab evaluate RUN explain=all` wrote, as tables and figures."""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.metrics import registry
from attnlab.report.drawing import StudyFigure, Styles, draw_estimate, label_variants, title_of
from attnlab.report.statistics import Estimate, estimate
from attnlab.report.study import RunRecord, Study
from attnlab.report.style import STYLE_SHEET
from attnlab.report.tables import MISSING, Cell, Column, Table, count_cell, heading, metric_cell

FILE = "explanations.json"
"""Name of the file in the folder of an evaluation."""

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

log = logging.getLogger(__name__)


class Scorecard(NamedTuple):
    """Scores of one evaluation of a run."""

    split: str  # evaluated split, such as "test"
    # settings of the evaluation that differ from those of the run, without those of `explain`, and the
    # checkpoint if it is not the best one
    overrides: tuple[str, ...]
    settings: tuple[str, ...]  # those of `explain` that change the scores, such as "explain.sentences=200"
    scores: dict[str, float]  # value of each measure, by names such as "test/explanation/gradient_tau"
    # ends of their 95 % bootstrap intervals over sentences, where there are several
    intervals: dict[str, tuple[float, float]]


def read_scorecards(run: Path) -> list[Scorecard]:
    """Read the scorecards in a run directory, oldest first; damaged files are left out with a warning."""
    cards = []
    for path in sorted((run / "evaluations").glob(f"*/{FILE}"), key=lambda path: path.stat().st_mtime_ns):
        try:
            cards.append(_parse_scorecard(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("%s is left out: it is not a scorecard of attnlab evaluate (%r)", path, error)
    return cards


def _parse_scorecard(record: dict[str, object]) -> Scorecard:
    split, scores, overrides = str(record["split"]), record["scores"], record["overrides"]
    settings = record.get("settings", {})
    if not isinstance(scores, dict) or not isinstance(overrides, list) or not isinstance(settings, dict):
        raise TypeError("scores, overrides or settings")
    measured = {
        f"{split}/{name}": scores[measure]
        for name in registry.names("explanation")
        if (measure := name.removeprefix("explanation/")) in scores
    }
    return Scorecard(
        split,
        tuple(map(str, overrides)),
        tuple(f"explain.{name}={value}" for name, value in settings.items()),
        {name: float(score["value"]) for name, score in measured.items()},
        {
            name: (float(score["low"]), float(score["high"]))
            for name, score in measured.items()
            if score["low"] is not None
        },
    )


def gather_evaluations(study: Study) -> list[Study]:
    """Return a study of the finished runs for each way in which they were evaluated.

    Its name is the split with the settings that differ from those of the runs. The scores and the intervals
    over sentences are those of the scorecards: several of a run with the same settings, such as those of
    different measures, are one; of a measure that several contain, the newest value counts.
    """
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], dict[Path, RunRecord]] = {}
    for run in study.finished:
        for card in read_scorecards(run.directory):
            if card.scores:
                group = groups.setdefault((card.split, card.overrides, card.settings), {})
                older = group.get(run.directory, replace(run, scores={}, over_sentences={}))
                replaced = {**older.over_sentences, **dict.fromkeys(card.scores)} | card.intervals
                group[run.directory] = replace(
                    run,
                    scores=older.scores | card.scores,
                    over_sentences={metric: ends for metric, ends in replaced.items() if ends},
                )
    counts = Counter((split, overrides) for split, overrides, _ in groups)
    evaluations = []
    for (split, overrides, settings), group in sorted(groups.items()):
        measured = {metric for run in group.values() for metric in run.scores}
        metrics = [f"{split}/{name}" for name in registry.names("explanation")]
        title = " ".join((split, *overrides, *(settings if counts[split, overrides] > 1 else ())))
        selected = tuple(metric for metric in metrics if metric in measured)
        evaluations.append(Study(title, [*group.values()], selected))
    return evaluations


def _estimates(study: Study, metric: str) -> dict[str, tuple[Estimate, list[float]]]:
    """Return the mean, and the values, of each variant that has the measure."""
    result = {}
    for variant, runs in study.by_variant().items():
        measured = [run for run in runs if metric in run.scores]
        if measured:
            values = [run.scores[metric] for run in measured]
            mean = estimate(values, registry.metric(metric).bounds)
            if len(values) == 1 and metric in measured[0].over_sentences:
                low, high = measured[0].over_sentences[metric]
                mean = replace(mean, low=low, high=high)
            result[variant] = mean, values
    return result


def scorecard_tables(evaluations: Sequence[Study]) -> list[Table]:
    """Build a table with one row per variant for each evaluation."""
    tables = []
    for name, study in zip(_names(evaluations), evaluations, strict=True):
        metrics = study.metrics
        estimates = {metric: _estimates(study, metric) for metric in metrics}
        columns = [Column("variant", numeric=False), Column("runs"), *(Column(heading(m)) for m in metrics)]
        rows = [
            [
                *(Cell(variant, variant), count_cell(len(runs))),
                *(
                    metric_cell(metric, estimates[metric][variant][0])
                    if variant in estimates[metric]
                    else Cell(MISSING)
                    for metric in metrics
                ),
            ]
            for variant, runs in study.by_variant().items()
        ]
        tables.append(Table(name, _title(study), columns, rows, [NOTE]))
    return tables


def draw_scorecards(evaluations: Sequence[Study], styles: Styles) -> list[StudyFigure]:
    """Draw a figure with one panel per measure for each evaluation."""
    figures = []
    for name, study in zip(_names(evaluations), evaluations, strict=True):
        drawn = [metric for metric in study.metrics if not metric.endswith(NOT_DRAWN)]
        if drawn:
            with mpl.rc_context(fname=STYLE_SHEET):
                figure = _small_multiples(study, drawn, styles)
            figures.append(StudyFigure(name, _title(study), CAPTION, figure, needs_legend=False))
    return figures


def _names(evaluations: Sequence[Study]) -> list[str]:
    return [f"explanations{f'-{i}' * (i > 1)}" for i in range(1, len(evaluations) + 1)]


def _title(study: Study) -> str:
    return f"Attention weights as explanations: {study.name}"


def _small_multiples(study: Study, metrics: Sequence[str], styles: Styles) -> Figure:
    variants = study.variants
    rows = ceil(len(metrics) / COLUMNS)
    height = rows * (PANEL[1] + ROW_HEIGHT * len(variants))
    figure = Figure(figsize=(COLUMNS * PANEL[0], height), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False).ravel()
    for axes, metric in zip(panels, metrics, strict=False):
        _draw_panel(axes, metric, study, styles)
    for axes in panels[len(metrics) :]:
        axes.set_visible(False)
    label_variants(panels[0], variants)
    return figure


def _draw_panel(axes: Axes, metric: str, study: Study, styles: Styles) -> None:
    described = registry.metric(metric)
    scale, unit, variants = described.scale, described.unit, study.variants
    for variant, (at_random, _) in _estimates(study, metric + RANDOM).items():
        style = styles[variant]
        point = scale * at_random.mean, variants.index(variant)
        axes.plot(*point, style.marker, color=style.colour, markersize=4, fillstyle="none")
    for variant, (mean, values) in _estimates(study, metric).items():
        low, high = (None if end is None else scale * end for end in (mean.low, mean.high))
        scaled = Estimate(scale * mean.mean, low, high, mean.count)
        points = [scale * value for value in values]
        draw_estimate(axes, variants.index(variant), points, scaled, styles[variant], size=4)
    axes.set_title(f"{title_of(metric)}{f', {unit}' if unit else ''}", fontsize=6.5)
    axes.tick_params(labelsize=6.5)
    axes.grid(visible=False, axis="y")
