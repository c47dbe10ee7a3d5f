"""Print the table and the comparisons of this folder's README, and draw its figures.

python summary.py RUNS: the folder with the run directories.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.analysis.statistics import estimate
from attnlab.analysis.study import RunRecord, Study
from attnlab.report import figures, tables
from attnlab.report.table import Cell, Column, Table

HERE = Path(__file__).parent
LOSS = "train/loss_epoch"
METRICS = ("test/exact_match", "test/loss", "test/attention/alignment_accuracy")
PUBLISHED = "as published"
WITH_BRIDGE = "decoder started from the encoder"
NO_ATTENTION = "the same without attention"
EXAMPLE = "7 9 25 26 23 23"


def main(folder: str) -> None:
    """Print Markdown and write the figures."""
    study = collect([Path(folder)])
    runs = [replace(run, variant=variant_name(run)) for run in study.runs]
    study = replace(study, runs=runs, selected_metrics=METRICS)
    print(table(study).markdown())
    reference = NO_ATTENTION if NO_ATTENTION in study.variants else None
    print(tables.comparison_list(compare(study, reference=reference)), end="")
    figures.write_one(study, "train-loss_epoch", HERE)
    first = study.by_variant()[PUBLISHED][0]
    shutil.copyfile(first.directory / "figures" / "attention-1.png", HERE / "attention-published.png")


def variant_name(run: RunRecord) -> str:
    """Name the variant by its attention and bridge."""
    if run.config["attention"]["_target_"].endswith(".NoAttention"):
        return NO_ATTENTION
    return PUBLISHED if run.config["bridge"]["_target_"].endswith(".ZeroBridge") else WITH_BRIDGE


def table(study: Study) -> Table:
    """Extend the table of scores by the training loss and the example of the published system."""
    scores = tables.scores_table(study)
    columns = [
        *scores.columns,
        Column("training loss, first epoch"),
        Column("last epoch"),
        Column(f"[{EXAMPLE.replace(' ', ', ')}] reversed"),
    ]
    rows = []
    for row, runs in zip(scores.rows, study.by_variant().values(), strict=True):
        correct = sum(reverses_example(run) for run in runs)
        losses = (mean([run.series[LOSS][epoch][1] for run in runs]) for epoch in (0, -1))
        rows.append([*row, *losses, Cell(f"{correct} of {len(runs)}")])
    return tables.with_parameters(replace(scores, columns=columns, rows=rows), study)


def mean(values: Sequence[float]) -> Cell:
    """Format the mean and its interval."""
    interval = estimate(values)
    return Cell(f"{interval.mean:.3f}" + (f" ± {interval.half_width:.3f}" if interval.half_width else ""))


def reverses_example(run: RunRecord) -> bool:
    """Return whether the run reverses the example of the published system."""
    command = [Path(sys.executable).with_name("attnlab"), "predict", run.directory]
    done = subprocess.run(command, input=EXAMPLE, capture_output=True, text=True, check=True)
    return done.stdout.split() == EXAMPLE.split()[::-1]


if __name__ == "__main__":
    main(*sys.argv[1:])
