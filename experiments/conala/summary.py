"""Print the table and the sentences of a README about attention on CoNaLa, and draw its figure.

python summary.py RUNS README_FOLDER: the folder of run directories, and where the figure goes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.analysis.statistics import Estimate, estimate
from attnlab.analysis.study import Study
from attnlab.plotting.style import variant_styles
from attnlab.report import figures, tables
from attnlab.report.tables import Cell, Column, Table, escape_markdown

METRICS = ("val/loss", "val/token_accuracy", "val/conala_bleu", "val/conala_exact_match")
TESTED = ("val/loss", "val/conala_bleu")
NONE = "none"


def main(runs: str, folder: str) -> None:
    study = collect([Path(runs)])
    known = {name for run in study.finished for name in run.scores}
    study = replace(study, selected_metrics=tuple(name for name in METRICS if name in known))
    print(table(study).markdown())
    for variant in study.variants:
        if variant != NONE:
            gain = relative_gain(study, variant)
            print(f"- With {escape_markdown(variant)} the validation loss is {told(gain)}.")
    tested = replace(study, selected_metrics=tuple(name for name in TESTED if name in known))
    for comparison in compare(tested, reference=NONE):
        if comparison.over == "seeds":
            print(f"- {escape_markdown(comparison.summary)}")
    looks = variant_styles(study.variants)
    drawings = {drawing.name: drawing for drawing in figures.draw(study, looks)}
    figures.write([drawings["val-loss"]], looks, Path(folder))


def table(study: Study) -> Table:
    scores = tables.scores_table(study)
    groups = study.by_variant().values()
    rows = [[*row, Cell(f"{runs[0].parameters:,}")] for row, runs in zip(scores.rows, groups, strict=True)]
    return replace(scores, columns=[*scores.columns, Column("parameters")], rows=rows)


def relative_gain(study: Study, variant: str) -> Estimate:
    """By how many % of the baseline's the validation loss is lower, over the seeds that both have."""
    groups = study.by_variant()
    ours, theirs = ({run.seed: run.scores["val/loss"] for run in groups[name]} for name in (variant, NONE))
    shared = sorted(ours.keys() & theirs.keys())
    return estimate([100 * (1 - ours[seed] / theirs[seed]) for seed in shared])


def told(gain: Estimate) -> str:
    seeds = f"{gain.count} seed{'s' * (gain.count != 1)}"
    way = "lower" if gain.mean > 0 else "higher"
    if gain.low is None or gain.high is None:
        return f"{abs(gain.mean):.2f} % {way}, {seeds}"
    low, high = sorted(end if gain.mean > 0 else -end for end in (gain.low, gain.high))
    return f"{abs(gain.mean):.2f} % {way} [{low:.2f}, {high:.2f}], {seeds}"


if __name__ == "__main__":
    main(*sys.argv[1:])
