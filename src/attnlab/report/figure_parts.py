"""Helpers that all figures of a study share: the figure with its texts, axes and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.metrics import registry
from attnlab.plotting.style import VariantStyle
from attnlab.report.study import RunRecord

Groups = Mapping[str, Sequence[RunRecord]]
Styles = Mapping[str, VariantStyle]

SIZE = (4.4, 2.9)  # inches
MAX_NAME = 30  # characters of a variant's name in a figure
MAX_POINTS = 300  # points per curve; more are not visible and make the page large


@dataclass(frozen=True)
class StudyFigure:
    """A figure of a study, with its texts.

    Attributes:
        name: stem of its file.
        title: heading in the page.
        caption: what is plotted, and how uncertainty is shown.
        figure: the figure, without a legend of variants; the page has one for all figures.
        dashed: whether dash patterns distinguish the variants, else only markers do.
        needs_legend: whether variants appear in the figure without their names.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    dashed: bool = False
    needs_legend: bool = True


def new_figure(height: float = SIZE[1]) -> tuple[Figure, Axes]:
    """Create a figure with one pair of axes; the height is in inches."""
    figure = Figure(figsize=(SIZE[0], height), layout="constrained")
    return figure, figure.add_subplot()


def values_of(runs: Sequence[RunRecord], metric: str) -> list[float]:
    """Return the finite scores of the runs in a metric."""
    return [run.scores[metric] for run in runs if isfinite(run.scores.get(metric, float("nan")))]


def bounds_of(metric: str) -> tuple[float, float]:
    """Return the smallest and the largest possible value in the unit of the metric."""
    low, high = registry.bounds(metric)
    return registry.scale(metric) * low, registry.scale(metric) * high


def axis_label(metric: str, *, split: bool = False) -> str:
    """Return the label of a metric with its unit; see `label_of`."""
    unit, label = registry.unit(metric), label_of(metric, split=split)
    return f"{label}, in {unit}" if unit else label


def title_of(metric: str, *, split: bool = False) -> str:
    """Return the label of a metric, capitalised unless it contains capitals; see `label_of`."""
    label = label_of(metric, split=split)
    return label.capitalize() if label.islower() else label


def label_of(metric: str, *, split: bool = False) -> str:
    """Return the label of a metric with the name of a test set, and with "(val)" only if `split`."""
    named = split or registry.split(metric) not in ("test", "val") or metric.startswith("train/")
    return registry.label(metric if named else f"test/{registry.name(metric)}")
