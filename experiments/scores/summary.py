"""Print the table and the sentences of this folder's README, and draw its figure.

python summary.py: from the runs and the costs told in ../mechanisms/results.csv and costs.csv.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnlab.analysis.comparison import compare
from attnlab.analysis.statistics import Estimate, estimate
from attnlab.analysis.study import RunRecord, Study
from attnlab.plotting.files import save
from attnlab.plotting.style import COLOURS
from attnlab.report import tables
from attnlab.report.tables import Cell, Column, Table, escape_markdown

HERE = Path(__file__).parent
MECHANISMS = HERE.parent / "mechanisms"
EXACT, ALIGNED = "test/exact_match", "test/attention/alignment_accuracy"
FAMILIES = {
    "additive": ("additive", "concat"),
    "dot product": ("dot", "general", "cosine"),
    "self-attention's": ("scaled_dot", "multihead"),
}
LOOKS = dict(zip(FAMILIES, zip(COLOURS, "os^", strict=False), strict=True))
LENGTHS = ("task", "50")
Costs = dict[str, dict[str, dict[str, Estimate]]]
"""By lengths, mechanism and quantity."""


def main() -> None:
    families = {name: family for family, names in FAMILIES.items() for name in names}
    study = Study("reverse", read_runs(families), selected_metrics=(EXACT, ALIGNED))
    costs = read_costs()
    print(table(study, families, costs).markdown())
    for found in compare(study, reference="additive"):
        print(f"- {escape_markdown(found.summary)}")
    save(draw(study, families, costs), HERE / "scores.svg")


def read_runs(families: dict[str, str]) -> list[RunRecord]:
    with (MECHANISMS / "results.csv").open(newline="") as file:
        return [
            RunRecord(
                directory=Path(f"{row['variant']}-{row['seed']}"),
                study="reverse",
                variant=row["variant"],
                seed=int(row["seed"]),
                status="finished",
                scores={EXACT: float(row["3–12"]), ALIGNED: float(row["alignment_accuracy"])},
                parameters=int(row["parameters"]),
            )
            for row in csv.DictReader(file)
            if row["study"] == "mechanisms" and row["variant"] in families
        ]


def read_costs() -> Costs:
    """Times as multiples of the additive score's in the same round."""
    rounds: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    with (MECHANISMS / "costs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            told = {name: float(row[name]) for name in ("ms", "times_additive", "gflop", "peak_mb")}
            rounds[row["lengths"], row["mechanism"]].append(told)
    found: Costs = {lengths: {} for lengths in LENGTHS}
    for (lengths, name), rows in rounds.items():
        found[lengths][name] = {
            "ratio": estimate([row["times_additive"] for row in rows]),
            "ms": Estimate(min(row["ms"] for row in rows), None, len(rows)),
            "gflop": Estimate(rows[0]["gflop"], None, 1),
            "peak_mb": Estimate(rows[0]["peak_mb"], None, 1),
        }
    return found


def table(study: Study, families: dict[str, str], costs: Costs) -> Table:
    quality = tables.scores_table(study)
    columns = [
        Column("score of", numeric=False),
        *quality.columns,
        Column("parameters"),
        *(Column(f"time a step, {lengths}") for lengths in LENGTHS),
        *(Column(f"GFLOP, {lengths}") for lengths in LENGTHS),
        Column("MB, 50"),
    ]
    rows = []
    for row, (name, runs) in zip(quality.rows, study.by_variant().items(), strict=True):
        cells = [Cell(families[name]), *row, Cell(f"{runs[0].parameters:,}")]
        for lengths in LENGTHS:
            ratio = costs[lengths][name]["ratio"]
            spread = f" ± {ratio.half_width:.2f}" if ratio.half_width else ""
            cells.append(Cell(f"{ratio.mean:.2f}{spread}"))
        cells += [Cell(f"{costs[lengths][name]['gflop'].mean:.2f}") for lengths in LENGTHS]
        rows.append([*cells, Cell(f"{costs['50'][name]['peak_mb'].mean:.1f}")])
    notes = (
        "Scores: mean over seeds ± half of the 95 % confidence interval (Student's t). Times: multiples of "
        "the additive score's in the same round, mean over rounds ± the same; 50: of 50 tokens on either "
        "side. GFLOP: operations of matrix products, and tanh is none. MB: what a batch needs beside weights "
        "and optimizer."
    )
    return Table("scores", "Scores", columns, rows, [notes])


def draw(study: Study, families: dict[str, str], costs: Costs) -> Figure:
    """What is wrong against time, a mark for each mechanism; logarithmic, for most are nearly right."""
    figure = Figure(figsize=(8.4, 3.9), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    told = {EXACT: "sequences not exactly right, in %", ALIGNED: "tokens that look elsewhere, in %"}
    for axes, (metric, label) in zip(panels, told.items(), strict=True):
        for name, runs in study.by_variant().items():
            ratio = costs["50"][name]["ratio"].mean
            mark(axes, name, families[name], ratio, [100 * (1 - run.scores[metric]) for run in runs])
        axes.set(xlabel="time a training step at length 50, additive = 1", ylabel=label, yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.margins(x=0.27, y=0.12)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_title("Quality", loc="left", fontsize=11)
    panels[1].set_title("Readability", loc="left", fontsize=11)
    handles = [
        Line2D([], [], linestyle="none", color=colour, marker=shape) for colour, shape in LOOKS.values()
    ]
    figure.legend(handles, list(LOOKS), loc="outside lower center", ncols=len(LOOKS), frameon=False)
    return figure


def mark(axes: Axes, name: str, family: str, ratio: float, wrong: list[float]) -> None:
    """The mean over seeds, from the smallest to the largest."""
    colour, shape = LOOKS[family]
    mean = fmean(wrong)
    spread = [[mean - min(wrong)], [max(wrong) - mean]]
    axes.errorbar(ratio, mean, yerr=spread, fmt=shape, color=colour, capsize=2.5)
    # where the label does not lie on a neighbour's, nor outside
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
