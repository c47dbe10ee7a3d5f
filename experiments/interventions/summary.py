"""Print the tables of this folder's README, and draw its figure.

python summary.py OUTPUTS: the folder that holds the runs of `mechanisms` and `conala_attention`, evaluated
with attention_override=all.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.analysis.collect import collect
from attnlab.analysis.study import RunRecord
from attnlab.nn.attention.interventions import INTERVENTIONS
from attnlab.plotting.files import save
from attnlab.report.tables import Cell, Column, Table

HERE = Path(__file__).parent
Points = dict[str, list[float]]
"""By intervention, and under "" without one, each seed's score in points of 100."""
STUDIES = {
    "mechanisms": ("Sequences reversed, exact match in %", "test/exact_match", 100.0),
    "conala_attention": ("CoNaLa, official BLEU on the development split", "val/conala_bleu", 1.0),
}


def main(outputs: str) -> None:
    """Print a table for each study, and draw them side by side."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (study, (title, metric, scale)) in zip(figure.subplots(1, 2), STUDIES.items(), strict=True):
        groups = collect([Path(outputs) / study]).by_variant()
        found = {name: points(runs, metric, scale) for name, runs in groups.items()}
        told = {name: scores for name, scores in found.items() if scores}
        order = sorted(told, key=lambda name: -drop(told[name], "uniform"))
        print(f"### {title}\n\n{table({name: told[name] for name in order}).markdown()}")
        draw(axes, title, {name: told[name] for name in order})
    save(figure, HERE / "drops.png")


def points(runs: list[RunRecord], metric: str, scale: float) -> Points:
    """The scores of the runs that were evaluated under every intervention; nothing if none was."""
    found: Points = {}
    for run in runs:
        for path in sorted((run.directory / "evaluations").glob("*/result.json")):
            result = json.loads(path.read_text())
            if "attention_override=all" in result["overrides"]:
                found.setdefault("", []).append(scale * result["metrics"][metric])
                for how, changed in result["attention_override"].items():
                    found.setdefault(how, []).append(scale * changed["metrics"][metric])
    return found


def drop(scores: Points, how: str) -> float:
    """How many points an intervention costs, on average over seeds."""
    return fmean(before - after for before, after in zip(scores[""], scores[how], strict=True))


def table(told: dict[str, Points]) -> Table:
    """A row for each mechanism: its score, and what each intervention takes away."""
    columns = [
        Column("mechanism", numeric=False),
        Column("seeds"),
        Column("as learned"),
        *map(Column, INTERVENTIONS),
    ]
    rows = [
        [
            Cell(name),
            Cell(str(len(scores[""]))),
            Cell(f"{fmean(scores['']):.1f}"),
            *(Cell(f"{round(-drop(scores, how), 1) + 0.0:+.1f}") for how in INTERVENTIONS),  # no -0.0
        ]
        for name, scores in told.items()
    ]
    return Table("interventions", "Interventions", columns, rows)


def draw(axes: Axes, title: str, told: dict[str, Points]) -> None:
    """A heat map of what is left: mechanisms by interventions."""
    columns = ("", *INTERVENTIONS)
    left = [[fmean(scores[how]) for how in columns] for scores in told.values()]
    axes.imshow(left, aspect="auto", cmap="viridis", vmin=0)
    middle = max(map(max, left)) / 2
    for row, values in enumerate(left):
        for column, value in enumerate(values):
            colour = "white" if value < middle else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(columns)), ["as learned", *INTERVENTIONS], rotation=45, ha="right")
    axes.set_yticks(range(len(told)), list(told))
    axes.set_title(title, fontsize=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
