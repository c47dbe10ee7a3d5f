"""Print the table and the comparisons of this folder's README, and draw its figure.

python summary.py RUNS: the folder with the run directories of study=conala_steps.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import Comparison, compare
from attnlab.analysis.study import Study
from attnlab.report import figures, tables

HERE = Path(__file__).parent
BLEU = "val/conala_bleu"
METRICS = (BLEU, "val/conala_exact_match", "val/slot_accuracy", "val/parses", "val/loss")


def main(folder: str) -> None:
    """Print Markdown and write the figure."""
    study = replace(collect([Path(folder)]), selected_metrics=METRICS)
    print(tables.with_parameters(tables.scores_table(study), study).markdown())
    steps = [compare_step(study, before, after) for before, after in pairwise(sorted(study.variants))]
    print(tables.comparison_list(steps), end="")
    figures.write_one(study, "val-conala_bleu", HERE)


def compare_step(study: Study, before: str, after: str) -> Comparison:
    """Compare a variant with the previous one across seeds."""
    runs = [run for run in study.runs if run.variant in (before, after)]
    pair = replace(study, runs=runs, selected_metrics=(BLEU,))
    return next(comparison for comparison in compare(pair, reference=before) if comparison.over == "seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
