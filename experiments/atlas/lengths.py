"""Draw exact match over the length of the inputs, all mechanisms and tasks, and write the data, lengths.csv.

The numbers come from the results.csv of three experiments: this one, mechanisms and lengths.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.report.files import save
from attnlab.report.style import COLOURS, MUTED, STYLE_SHEET

HERE = Path(__file__).parent
LONGEST = {
    "reverse": (8, 16),
    "duplicate": (6, 12),
    "selective_copy": (6, 12),
    "stack": (8, 16),
    "dyck": (12, 24),
    "sort": (8, 16),
    "scan_length": (22, 48),
    "addition": (2, 4),
    "ngram_copy": (6, 12),
    "modular": (5, 9),
    "recall": (6, 12),
}
"""Longest training input and longest input of the test set `longer` in the atlas, for SCAN the output."""
RANGES = {"3–12": 12, "13–24": 24, "25–48": 48}
"""Longest inputs of the test sets of mechanisms; networks are trained on the first."""
MOVING, APART = "two moving heads", "heads that start apart"
HUNDREDFOLD = {
    "copy": ("copy", 8, 800),
    "reverse": ("reverse", 8, 800),
    "duplicate": ("duplicate", 8, 800),
    "reversed_addition": ("addition", 10, 1000),
}
"""Tasks of lengths: the panel, and the longest inputs of training and test."""
HIGHLIGHTED = {
    MOVING: COLOURS[6],
    APART: COLOURS[6],
    "shift": COLOURS[0],
    "location_sensitive": COLOURS[1],
    "mixture": COLOURS[3],
    "additive": COLOURS[2],
    "transformer": COLOURS[4],
    "mingru": COLOURS[5],
    "none_matched": MUTED,
}
OTHER = "#b5b2aa"
PANELS = ("copy", *LONGEST)


class Point(NamedTuple):
    """Exact match of a network on inputs of some length, over its seeds."""

    task: str
    network: str
    experiment: str
    longest: int  # longest input of the test set, in tokens; digits for addition
    multiple: float  # of the longest training input
    seeds: int
    mean: float
    lowest: float
    highest: float


def main() -> None:
    """Write the data and the figure."""
    points = [*atlas_points(), *mechanism_points(), *hundredfold_points()]
    with (HERE / "lengths.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Point._fields)
        writer.writerows(points)
    with mpl.rc_context(fname=STYLE_SHEET):
        save(draw(points), HERE / "lengths.svg")


def rows_of(experiment: str) -> list[dict[str, str]]:
    """Return the runs of an experiment."""
    with (HERE.parent / experiment / "results.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def point(task: str, network: str, experiment: str, longest: int, trained: int, scores: list[float]) -> Point:
    """Return the point of the scores of all seeds."""
    rounded = (round(value, 4) for value in (fmean(scores), min(scores), max(scores)))
    return Point(task, network, experiment, longest, round(longest / trained, 2), len(scores), *rounded)


def atlas_points() -> Iterator[Point]:
    """Yield the points of this experiment."""
    scores = defaultdict(list)
    for row in rows_of("atlas"):
        scores[row["task"], row["model"], row["test_set"]].append(float(row["exact_match"]))
    for task, (trained, longer) in LONGEST.items():
        for model in dict.fromkeys(model for name, model, _ in scores if name == task):
            for test_set, longest in (("same", trained), ("longer", longer)):
                yield point(task, model, "atlas", longest, trained, scores[task, model, test_set])


def mechanism_points() -> Iterator[Point]:
    """Yield those of all mechanisms on reversal and copying."""
    scores = defaultdict(list)
    for row in rows_of("mechanisms"):
        study, _, mechanism = row["variant"].partition(": ")
        if task := {"mechanisms": "reverse", "mechanisms_copy": "copy"}.get(study):
            for name in RANGES:
                scores[task, mechanism, name].append(float(row[f"test/{name}/exact_match"]))
    for (task, mechanism, name), values in scores.items():
        yield point(task, mechanism, "mechanisms", RANGES[name], 12, values)


def hundredfold_points() -> Iterator[Point]:
    """Yield those of inputs a hundred times as long as in training."""
    rows = rows_of("lengths")
    # The first setting of the experiment and the last one, by heads, latches and learning rate.
    networks = {("2", "0.0", "0.005"): MOVING, ("3", "0.5", "0.003"): APART}
    scores = defaultdict(list)
    for row in rows:
        if network := networks.get((row["heads"], row["latches"], row["learning_rate"])):
            for test_set in ("same", "longer"):
                scores[row["task"], network, test_set].append(float(row[f"exact_match_{test_set}"]))
    for name, (task, trained, longer) in HUNDREDFOLD.items():
        for network in (MOVING, APART):
            for test_set, longest in (("same", trained), ("longer", longer)):
                if values := scores[name, network, test_set]:
                    yield point(task, network, "lengths", longest, trained, values)


def draw(points: list[Point]) -> Figure:
    """Draw one panel per task, with one line per network."""
    figure = Figure(figsize=(9, 8.6), layout="constrained")
    for axes, task in zip(figure.subplots(4, 3, sharey=True).flat, PANELS, strict=True):
        lines = defaultdict(list)
        for each in points:
            # The reversal of the atlas is left out: the panel has that of all mechanisms.
            if each.task == task and (task, each.experiment) != ("reverse", "atlas"):
                lines[each.network].append(each)
        draw_panel(axes, task, lines)
    figure.supxlabel("longest inputs, as a multiple of the longest training inputs (log scale)", fontsize=9)
    figure.supylabel("exact match, %", fontsize=9)
    return figure


def draw_panel(axes: Axes, task: str, lines: dict[str, list[Point]]) -> None:
    """Draw the lines of one task, with their names at their ends."""
    ends: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for name, line in sorted(lines.items(), key=lambda item: item[0] in HIGHLIGHTED):
        multiples, means = [each.multiple for each in line], [100 * each.mean for each in line]
        if name not in HIGHLIGHTED:
            axes.plot(multiples, means, color=OTHER, linewidth=0.8, marker=".", markersize=3)
            continue
        colour = HIGHLIGHTED[name]
        dash = {MOVING: "dashed", APART: "dotted"}.get(name, "solid")
        axes.plot(multiples, means, color=colour, linestyle=dash, marker="o", markersize=4, zorder=3)
        ends[multiples[-1]].append((means[-1], name))
    for multiple, labels in ends.items():
        for height, name in spread(labels):
            axes.annotate(
                name,
                (multiple, height),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=7.5,
                color=HIGHLIGHTED[name],
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )
    others = sum(name not in HIGHLIGHTED for name in lines)
    title = f"{task} ({others} others in grey)" if others else task
    axes.set_title(title, loc="left", fontsize=9)
    last = max(each.multiple for line in lines.values() for each in line)
    axes.set_xscale("log")
    # The names need 2/5 of the width of the panel.
    axes.set_xlim(0.93 if last < 10 else 0.8, last**1.75 if last < 10 else last**1.6)
    ticks = sorted({each.multiple for line in lines.values() for each in line})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.set_ylim(-4, 104)


def spread(labels: list[tuple[float, str]], gap: float = 10) -> list[tuple[float, str]]:
    """Move labels at these heights apart, within 0 to 100, until neighbours have a distance of `gap`."""
    heights, names = (list(part) for part in zip(*sorted(labels), strict=True))
    for _ in range(200):
        for lower, upper in pairwise(range(len(heights))):
            overlap = max(0.0, gap - (heights[upper] - heights[lower]))
            heights[lower] = max(0.0, heights[lower] - overlap / 2)
            heights[upper] = min(100.0, heights[upper] + overlap / 2)
    return [*zip(heights, names, strict=True)]


if __name__ == "__main__":
    main()
