"""Print the table and the comparisons of this folder's README from results.csv, and draw its figure.

python summary.py [RUNS]: with the folder of the run directories of study=bottleneck, write results.csv and
the figure first.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from matplotlib.figure import Figure

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare, correct
from attnlab.analysis.results_file import format_results, read_results
from attnlab.analysis.statistics import estimate
from attnlab.analysis.study import RunRecord, Study
from attnlab.plotting.files import save
from attnlab.plotting.style import COLOURS
from attnlab.report import tables
from attnlab.report.table import Cell, Column, Table

HERE = Path(__file__).parent
METRIC = "test/exact_match"
ATTENTION, WITHOUT = "additive", "none_matched"
Groups = dict[str, dict[int, list[RunRecord]]]
"""Runs of each mechanism and length of the sequences."""


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        (HERE / "results.csv").write_text(format_results(collect([Path(runs)])))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=(METRIC,))
    groups = by_length(study)
    print(table(groups).markdown())
    pairs = [(f"{ATTENTION}-length{n}", f"{WITHOUT}-length{n}") for n in sorted(groups[ATTENTION])]
    comparisons = [
        row
        for pair in pairs
        for row in compare(
            replace(study, runs=[run for run in study.runs if run.variant in pair]), reference=pair[1]
        )
    ]
    print(tables.comparison_list(correct(comparisons)), end="")
    if runs is not None:
        save(draw(groups), HERE / "lengths.png")


def by_length(study: Study) -> Groups:
    """Group the runs by mechanism and length, which the variant names."""
    groups: Groups = {}
    for variant, runs in study.by_variant().items():
        mechanism, _, length = variant.partition("-length")
        groups.setdefault(mechanism, {})[int(length)] = runs
    return groups


def table(groups: Groups) -> Table:
    """Return a table of exact match with one row per mechanism and one column per length."""
    lengths = sorted({length for runs in groups.values() for length in runs})
    columns = [Column("attention", numeric=False), *(Column(f"{length} tokens [%]") for length in lengths)]
    rows = []
    for mechanism, runs in groups.items():
        cells = (
            tables.estimate_cell(
                estimate([100 * run.scores[METRIC] for run in runs[length]], (0, 100)), digits=1
            )
            for length in lengths
        )
        rows.append([Cell(mechanism), *cells])
    return Table("bottleneck", "Exact match by length", columns, rows)


def draw(groups: Groups) -> Figure:
    """Draw the exact match by length: a line through the means and a dot per seed."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    for (mechanism, runs), colour in zip(groups.items(), COLOURS, strict=False):
        lengths = sorted(runs)
        means = [100 * fmean(run.scores[METRIC] for run in runs[length]) for length in lengths]
        axes.plot(lengths, means, color=colour, label=mechanism)
        for length in lengths:
            values = [100 * run.scores[METRIC] for run in runs[length]]
            axes.plot([length] * len(values), values, ".", color=colour, ms=5)
    axes.set(xlabel="length in tokens", ylabel="exact match, %", ylim=(-3, 103))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
