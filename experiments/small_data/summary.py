"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories of study=conala_steps, write results.csv and
the figure first.
"""

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from attnlab.report import figures, tables
from attnlab.report.collect import collect
from attnlab.report.comparison import Comparison, compare, correct
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import Study

RESULTS = Path(__file__).with_name("results.csv")
BLEU = "val/conala_bleu"
METRICS = (BLEU, "val/conala_exact_match", "val/slot_accuracy", "val/parses", "val/loss")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        collected = replace(collect([Path(runs)]), selected_metrics=METRICS)
        RESULTS.write_text(format_results(collected))
        figures.write_figure(collected, "val-conala_bleu", RESULTS.parent)
    study = replace(read_results(RESULTS), selected_metrics=METRICS)
    print(tables.with_parameters(tables.scores_table(study), study).markdown())
    steps = [compare_step(study, before, after) for before, after in pairwise(sorted(study.variants))]
    print(tables.comparison_list(correct(steps)), end="")


def compare_step(study: Study, before: str, after: str) -> Comparison:
    """Compare a variant with the previous one across seeds."""
    runs = [run for run in study.runs if run.variant in (before, after)]
    (comparison,) = compare(replace(study, runs=runs, selected_metrics=(BLEU,)), reference=before)
    return comparison


if __name__ == "__main__":
    main(*sys.argv[1:])
