"""Print the tables of this folder's README, and draw its figure.

python summary.py OUTPUTS: the folder that contains the runs of `mechanisms` and `conala_attention`, evaluated
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
from attnlab.report.table import Cell, Column, Table

HERE = Path(__file__).parent
LEARNED = "as learned"
Scores = dict[str, list[float]]
"""Score of each seed (0 to 100), by intervention; `LEARNED` without intervention."""
STUDIES = {
    "mechanisms": ("Sequences reversed, exact match in %", "test/exact_match", 100.0),
    "conala_attention": ("CoNaLa, official BLEU on the development split", "val/conala_bleu", 1.0),
}


def main(outputs: str) -> None:
    """Print a table for each study, and draw them side by side."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (study, (title, metric, scale)) in zip(figure.subplots(1, 2), STUDIES.items(), strict=True):
        groups = collect([Path(outputs) / study]).by_variant()
        evaluated = {name: read_scores(runs, metric, scale) for name, runs in groups.items()}
        drops = {name: drop(scores, "uniform") for name, scores in evaluated.items() if scores}
        mechanisms = {name: evaluated[name] for name in sorted(drops, key=lambda name: -drops[name])}
        print(f"### {title}\n\n{table(mechanisms).markdown()}")
        draw(axes, title, mechanisms)
    save(figure, HERE / "drops.png")


def read_scores(runs: list[RunRecord], metric: str, scale: float) -> Scores:
    """Return the scores of the runs that were evaluated with all interventions; empty if none was."""
    scores: Scores = {}
    for run in runs:
        for path in sorted((run.directory / "evaluations").glob("*/result.json")):
            result = json.loads(path.read_text())
            if "attention_override=all" in result["overrides"]:
                scores.setdefault(LEARNED, []).append(scale * result["metrics"][metric])
                for intervention, changed in result["attention_override"].items():
                    scores.setdefault(intervention, []).append(scale * changed["metrics"][metric])
    return scores


def drop(scores: Scores, intervention: str) -> float:
    """Return the mean loss of score over seeds, in points."""
    pairs = zip(scores[LEARNED], scores[intervention], strict=True)
    return fmean(before - after for before, after in pairs)


def table(mechanisms: dict[str, Scores]) -> Table:
    """Return a table of each mechanism's score and its change by each intervention."""
    names = ("mechanism", "seeds", LEARNED, *INTERVENTIONS)
    columns = [Column(name, numeric=name != "mechanism") for name in names]
    rows = [
        [
            Cell(name),
            Cell(str(len(scores[LEARNED]))),
            Cell(f"{fmean(scores[LEARNED]):.1f}"),
            *(Cell(f"{round(-drop(scores, each), 1) + 0.0:+.1f}") for each in INTERVENTIONS),  # no -0.0
        ]
        for name, scores in mechanisms.items()
    ]
    return Table("interventions", "Interventions", columns, rows)


def draw(axes: Axes, title: str, mechanisms: dict[str, Scores]) -> None:
    """Draw a heat map of the remaining scores: mechanisms by interventions."""
    columns = (LEARNED, *INTERVENTIONS)
    remaining = [[fmean(scores[column]) for column in columns] for scores in mechanisms.values()]
    axes.imshow(remaining, aspect="auto", cmap="viridis", vmin=0)
    middle = max(map(max, remaining)) / 2
    for row, values in enumerate(remaining):
        for column, value in enumerate(values):
            colour = "white" if value < middle else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    axes.set_yticks(range(len(mechanisms)), list(mechanisms))
    axes.set_title(title, fontsize=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
