"""Print the table and the sentences of this folder's README, and draw its figure.

python summary.py RUNS: the folder of run directories of study=conala_steps.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import Comparison, compare
from attnlab.analysis.study import Study
from attnlab.plotting.style import variant_styles
from attnlab.report import figures, tables
from attnlab.report.tables import Cell, Column, escape_markdown

HERE = Path(__file__).parent
BLEU = "val/conala_bleu"
METRICS = (BLEU, "val/conala_exact_match", "val/slot_accuracy", "val/parses", "val/loss")


def main(folder: str) -> None:
    study = replace(collect([Path(folder)]), selected_metrics=METRICS)
    groups = study.by_variant()
    table = tables.scores_table(study)
    rows = [
        [*row, Cell(f"{runs[0].parameters:,}")] for row, runs in zip(table.rows, groups.values(), strict=True)
    ]
    print(replace(table, columns=[*table.columns, Column("parameters")], rows=rows).markdown())
    for before, after in pairwise(sorted(groups)):
        print(f"- {escape_markdown(step(study, before, after).summary)}")
    looks = variant_styles(study.variants)
    drawings = {drawing.name: drawing for drawing in figures.draw(study, looks)}
    figures.write([drawings["val-conala_bleu"]], looks, HERE)


def step(study: Study, before: str, after: str) -> Comparison:
    """What a piece of medicine changed, over seeds."""
    pair = replace(
        study, runs=[run for run in study.runs if run.variant in (before, after)], selected_metrics=(BLEU,)
    )
    return next(found for found in compare(pair, reference=before) if found.over == "seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
