"""Print the table and the comparisons of a README about attention on CoNaLa, and draw its figure.

python summary.py RUNS README_FOLDER: the folder with the run directories, and the folder for the figure.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.analysis.statistics import Estimate, estimate
from attnlab.analysis.study import Study
from attnlab.report import figures, tables
from attnlab.report.table import escape_markdown

METRICS = ("val/loss", "val/token_accuracy", "val/conala_bleu", "val/conala_exact_match")
TESTED = ("val/loss", "val/conala_bleu")
BASELINE = "none"


def main(runs: str, folder: str) -> None:
    """Print Markdown and write the figure."""
    study = collect([Path(runs)])
    available = {name for run in study.finished for name in run.scores}
    study = replace(study, selected_metrics=tuple(name for name in METRICS if name in available))
    print(tables.with_parameters(tables.scores_table(study), study).markdown())
    for variant in study.variants:
        if variant != BASELINE:
            gain = describe_gain(relative_gain(study, variant))
            print(f"- With {escape_markdown(variant)} the validation loss is {gain}.")
    tested = replace(study, selected_metrics=tuple(name for name in TESTED if name in available))
    comparisons = compare(tested, reference=BASELINE)
    print(tables.comparison_list(row for row in comparisons if row.over == "seeds"), end="")
    figures.write_one(study, "val-loss", Path(folder))


def relative_gain(study: Study, variant: str) -> Estimate:
    """Return the reduction of the validation loss in % of the baseline's, over the shared seeds."""
    groups = study.by_variant()
    ours, theirs = (
        {run.seed: run.scores["val/loss"] for run in groups[name]} for name in (variant, BASELINE)
    )
    shared = sorted(ours.keys() & theirs.keys())
    return estimate([100 * (1 - ours[seed] / theirs[seed]) for seed in shared])


def describe_gain(gain: Estimate) -> str:
    """Format a reduction with its interval, such as "4.54 % lower [2.52, 6.56], 5 seeds"."""
    seeds = f"{gain.count} seed{'s' * (gain.count != 1)}"
    direction = "lower" if gain.mean > 0 else "higher"
    if gain.low is None or gain.high is None:
        return f"{abs(gain.mean):.2f} % {direction}, {seeds}"
    low, high = sorted(end if gain.mean > 0 else -end for end in (gain.low, gain.high))
    return f"{abs(gain.mean):.2f} % {direction} [{low:.2f}, {high:.2f}], {seeds}"


if __name__ == "__main__":
    main(*sys.argv[1:])
