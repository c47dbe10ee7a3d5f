"""Print the table and the comparisons of this folder's README, and draw its figure.

python summary.py: reads ../mechanisms/results.csv and ../mechanisms/costs.csv.
"""

import csv
import runpy
from collections import defaultdict
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnlab.report import tables
from attnlab.report.comparison import compare
from attnlab.report.files import save
from attnlab.report.results_file import read_results
from attnlab.report.statistics import Estimate, estimate
from attnlab.report.study import RunRecord, Study
from attnlab.report.style import COLOURS

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
MECHANISMS = HERE.parent / "mechanisms"
EXACT, ALIGNED = "test/exact_match", "test/attention/alignment_accuracy"
FAMILIES = {
    "additive": ("additive", "concat"),
    "dot product": ("dot", "general", "cosine"),
    "scaled dot product": ("scaled_dot", "multihead"),
}
MARKERS = dict(zip(FAMILIES, zip(COLOURS, "os^", strict=False), strict=True))
LENGTHS = ("task", "50")
Costs = dict[str, dict[str, dict[str, Estimate]]]
"""Estimates by lengths, mechanism and quantity."""


def main() -> None:
    """Print Markdown and write the figure."""
    families = {name: family for family, names in FAMILIES.items() for name in names}
    study = Study("reverse", read_runs(families), selected_metrics=(EXACT, ALIGNED))
    costs = read_costs()
    print(table(study, families, costs))
    save(draw(study, families, costs), HERE / "scores.svg")


def read_runs(families: dict[str, str]) -> list[RunRecord]:
    """Read the runs of the mechanisms in `families` from results.csv."""
    runs = []
    for run in read_results(MECHANISMS / "results.csv").runs:
        variant = run.variant.removeprefix("mechanisms: ")
        if variant in families:
            scores = {EXACT: run.scores["test/3–12/exact_match"], ALIGNED: run.scores[ALIGNED]}
            runs.append(replace(run, variant=variant, scores=scores))
    return runs


def read_costs() -> Costs:
    """Read costs.csv; "ratio" is the time as a multiple of the additive score's in the same round."""
    rounds: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with (MECHANISMS / "costs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            values = {name: float(row[name]) for name in ("times_additive", "gflop", "peak_mb")}
            rounds[row["lengths"], row["mechanism"]].append(values)
    costs: Costs = {lengths: {} for lengths in LENGTHS}
    for (lengths, name), rows in rounds.items():
        costs[lengths][name] = {
            "ratio": estimate([row["times_additive"] for row in rows], (0, inf)),
            "gflop": Estimate(rows[0]["gflop"], None, None, 1),
            "peak_mb": Estimate(rows[0]["peak_mb"], None, None, 1),
        }
    return costs


def table(study: Study, families: dict[str, str], costs: Costs) -> str:
    """Return a Markdown table of scores and costs with one row per mechanism."""
    quality, names = tables.scores_table(study), [*study.by_variant()]
    text = quality.text.assign(
        **{"score function": [families[name] for name in names]},
    )
    text, note = SHORT["with_differences"](text, compare(study, reference="additive"), "additive")
    ratios = (costs["50"][name]["ratio"] for name in names)
    text["relative time"] = [tables.format_estimate(ratio, digits=2) for ratio in ratios]
    text = text.reset_index().set_index(["score function", "variant"])
    time = (
        "Relative time: of a training step with 50 tokens on both sides, as a multiple of the additive "
        "score's in the same round, mean over rounds."
    )
    return tables.markdown(text.drop(columns="seeds"), [*note, time])


def draw(study: Study, families: dict[str, str], costs: Costs) -> Figure:
    """Plot error rates (logarithmic) against time per step, with one marker per mechanism."""
    figure = Figure(figsize=(8.4, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    labels = {EXACT: "sequences not exactly right, in %", ALIGNED: "tokens aligned wrongly, in %"}
    for axes, (metric, label) in zip(panels, labels.items(), strict=True):
        for name, runs in study.by_variant().items():
            ratio = costs["50"][name]["ratio"].mean
            draw_mechanism(
                axes, name, families[name], ratio, [100 * (1 - run.scores[metric]) for run in runs]
            )
        axes.set(xlabel="time per training step at length 50, additive = 1", ylabel=label, yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.27, y=0.12)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_title("Exact match", loc="left", fontsize=11)
    panels[1].set_title("Alignment", loc="left", fontsize=11)
    handles = [
        Line2D([], [], linestyle="none", color=colour, marker=shape) for colour, shape in MARKERS.values()
    ]
    figure.legend(handles, list(MARKERS), loc="outside lower center", ncols=len(MARKERS), frameon=False)
    return figure


def draw_mechanism(axes: Axes, name: str, family: str, ratio: float, wrong: list[float]) -> None:
    """Plot the mean over seeds, and the range as an error bar."""
    colour, shape = MARKERS[family]
    mean = fmean(wrong)
    spread = [[mean - min(wrong)], [max(wrong) - mean]]
    axes.errorbar(ratio, mean, yerr=spread, fmt=shape, color=colour, capsize=2.5)
    # offsets that avoid overlapping labels
    (x, y), side = {
        "additive": ((6, -11), "left"),
        "general": ((-6, -4), "right"),
        "multihead": ((-6, -4), "right"),
    }.get(name, ((6, 4), "left"))
    axes.annotate(
        name, (ratio, mean), xytext=(x, y), textcoords="offset points", horizontalalignment=side, fontsize=9
    )


if __name__ == "__main__":
    main()
