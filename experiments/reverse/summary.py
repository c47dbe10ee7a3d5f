"""Print the table and the sentences of this folder's README, and draw its figures.

python summary.py RUNS: the folder of run directories.
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
from attnlab.plotting.style import variant_styles
from attnlab.report import figures, tables
from attnlab.report.tables import Cell, Column, Table, escape_markdown

HERE = Path(__file__).parent
LOSS = "train/loss_epoch"
METRICS = ("test/exact_match", "test/loss", "test/attention/alignment_accuracy")
PUBLISHED, STARTED, NONE = "as published", "decoder started from the encoder", "the same without attention"
EXAMPLE = "7 9 25 26 23 23"


def main(folder: str) -> None:
    found = collect([Path(folder)])
    runs = [replace(run, variant=called(run)) for run in found.runs]
    study = replace(found, runs=runs, selected_metrics=METRICS)
    print(table(study).markdown())
    for comparison in compare(study, reference=NONE if NONE in study.variants else None):
        print(f"- {escape_markdown(comparison.summary)}")
    looks = variant_styles(study.variants)
    drawings = {drawing.name: drawing for drawing in figures.draw(study, looks)}
    figures.write([drawings["train-loss_epoch"]], looks, HERE)
    first = study.by_variant()[PUBLISHED][0]
    shutil.copyfile(first.directory / "figures" / "attention-1.png", HERE / "attention-published.png")


def called(run: RunRecord) -> str:
    """What tells the variants apart, in words."""
    if run.config["attention"]["_target_"].endswith(".NoAttention"):
        return NONE
    return PUBLISHED if run.config["bridge"]["_target_"].endswith(".ZeroBridge") else STARTED


def table(study: Study) -> Table:
    scores = tables.scores_table(study)
    columns = [
        *scores.columns,
        Column("training loss, first epoch"),
        Column("last epoch"),
        Column(f"[{EXAMPLE.replace(' ', ', ')}] reversed"),
        Column("parameters"),
    ]
    rows = []
    for row, runs in zip(scores.rows, study.by_variant().values(), strict=True):
        right = sum(reverses(run) for run in runs)
        rows.append(
            [
                *row,
                *(mean([run.series[LOSS][epoch][1] for run in runs]) for epoch in (0, -1)),
                Cell(f"{right} of {len(runs)}"),
                Cell(f"{runs[0].parameters:,}"),
            ]
        )
    return Table("scores", "Scores", columns, rows, scores.notes)


def mean(values: Sequence[float]) -> Cell:
    found = estimate(values)
    return Cell(f"{found.mean:.3f}" + (f" ± {found.half_width:.3f}" if found.half_width else ""))


def reverses(run: RunRecord) -> bool:
    command = [Path(sys.executable).with_name("attnlab"), "predict", run.directory]
    done = subprocess.run(command, input=EXAMPLE, capture_output=True, text=True, check=True)
    return done.stdout.split() == EXAMPLE.split()[::-1]


if __name__ == "__main__":
    main(*sys.argv[1:])
