"""Print the tables and the sentences of this folder's README, and copy its heat map.

python summary.py RUNS: the folder that holds eng_mar_baseline, eng_mar and eng_mar_best.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.analysis.study import RunRecord
from attnlab.report import tables
from attnlab.report.tables import Cell, Column, Table, escape_markdown

HERE = Path(__file__).parent
METRICS = ("test/bleu", "test/chrf", "test/exact_match", "test/token_accuracy", "test/loss")
SYSTEMS = {
    "eng_mar_baseline": "published baseline",
    "eng_mar": "published attention",
    "eng_mar_best": "good recipe",
}
SAMPLES = 10


def main(folder: str) -> None:
    found = collect([Path(folder) / name for name in SYSTEMS])
    runs = [replace(run, study="eng_mar", variant=SYSTEMS[run.study]) for run in found.finished]
    study = replace(found, runs=runs, selected_metrics=METRICS)
    print(with_sizes(tables.scores_table(study), study.by_variant().values()).markdown())
    for reference in ("published baseline", "published attention"):
        for comparison in compare(study, reference=reference):
            again = reference == "published attention" and comparison.variant == "published baseline"
            if comparison.over == "sentences" and not again:
                print(f"- {escape_markdown(comparison.summary)}")
    first = [study.by_variant()[name][0] for name in SYSTEMS.values()]
    print()
    print(samples(first))
    shutil.copyfile(first[-1].directory / "figures" / "attention-3.png", HERE / "attention.png")


def with_sizes(scores: Table, groups: Iterable[Sequence[RunRecord]]) -> Table:
    rows = [[*row, Cell(f"{runs[0].parameters:,}")] for row, runs in zip(scores.rows, groups, strict=True)]
    return replace(scores, columns=[*scores.columns, Column("parameters")], rows=rows)


def samples(runs: Sequence[RunRecord]) -> str:
    """What each system makes of sentences at even distances through the test split."""
    every = len(runs[0].predictions) // SAMPLES
    lines = [["English", "reference", *SYSTEMS.values()], ["---"] * (2 + len(SYSTEMS))]
    for said in list(zip(*(run.predictions for run in runs), strict=True))[::every][:SAMPLES]:
        assert len({one.source for one in said}) == 1, "the systems translate different splits"
        lines.append([said[0].source, said[0].reference, *(one.hypothesis for one in said)])
    return "\n".join(f"| {' | '.join(map(escape_markdown, line))} |" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
