"""Print the tables and the comparisons of this folder's README, and copy its heat map.

python summary.py OUTPUTS: the folder that contains eng_mar_baseline, eng_mar and eng_mar_best.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.analysis.study import RunRecord
from attnlab.report import tables
from attnlab.report.table import escape_markdown

HERE = Path(__file__).parent
METRICS = ("test/bleu", "test/chrf", "test/exact_match", "test/token_accuracy", "test/loss")
BASELINE, PUBLISHED = "published baseline", "published attention"
SYSTEMS = {"eng_mar_baseline": BASELINE, "eng_mar": PUBLISHED, "eng_mar_best": "good recipe"}
SAMPLES = 10


def main(folder: str) -> None:
    """Print Markdown and copy the heat map."""
    study = collect([Path(folder) / name for name in SYSTEMS])
    runs = [replace(run, study="eng_mar", variant=SYSTEMS[run.study]) for run in study.finished]
    study = replace(study, runs=runs, selected_metrics=METRICS)
    print(tables.with_parameters(tables.scores_table(study), study).markdown())
    for reference, others in ((BASELINE, SYSTEMS.values()), (PUBLISHED, ["good recipe"])):
        comparisons = compare(study, reference=reference)
        selected = [row for row in comparisons if row.over == "sentences" and row.variant in others]
        print(tables.comparison_list(selected), end="")
    first = [study.by_variant()[name][0] for name in SYSTEMS.values()]
    print()
    print(samples(first))
    shutil.copyfile(first[-1].directory / "figures" / "attention-3.png", HERE / "attention.png")


def samples(runs: Sequence[RunRecord]) -> str:
    """Return a Markdown table of the translations of equally spaced test sentences."""
    every = len(runs[0].predictions) // SAMPLES
    lines = [["English", "reference", *SYSTEMS.values()], ["---"] * (2 + len(SYSTEMS))]
    sentences = list(zip(*(run.predictions for run in runs), strict=True))
    for outputs in sentences[::every][:SAMPLES]:
        assert len({output.source for output in outputs}) == 1, "the systems have different test splits"
        lines.append([outputs[0].source, outputs[0].reference, *(output.hypothesis for output in outputs)])
    return "\n".join(f"| {' | '.join(map(escape_markdown, line))} |" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
