"""Print the tables and the comparisons of this folder's README from results.csv and samples.md.

python summary.py [OUTPUTS]: with the folder that contains eng_mar_baseline, eng_mar and eng_mar_best, write
these files and the heat map first.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.analysis.results_file import format_results, read_results
from attnlab.analysis.study import RunRecord
from attnlab.report import tables
from attnlab.report.table import escape_markdown

HERE = Path(__file__).parent
METRICS = ("test/bleu", "test/chrf", "test/exact_match", "test/token_accuracy", "test/loss")
TESTED = ("test/bleu", "test/chrf", "test/exact_match")
SYSTEMS = {
    "eng_mar_baseline": "published baseline",
    "eng_mar": "published attention",
    "eng_mar_best": "good recipe",
}
SAMPLES = 10


def main(folder: str | None = None) -> None:
    """Print Markdown."""
    if folder is not None:
        write_files(Path(folder))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=METRICS)
    print(tables.with_parameters(tables.scores_table(study), study).markdown())
    comparisons = compare(replace(study, selected_metrics=TESTED), all_pairs=True)
    print(tables.comparison_list(comparisons), end="")
    print("\n" + (HERE / "samples.md").read_text(), end="")


def write_files(outputs: Path) -> None:
    """Write results.csv, the sample translations and the heat map."""
    study = collect([outputs / name for name in SYSTEMS])
    runs = [replace(run, study="eng_mar", variant=SYSTEMS[run.study]) for run in study.finished]
    study = replace(study, runs=runs, selected_metrics=METRICS)
    (HERE / "results.csv").write_text(format_results(study))
    first = [study.by_variant()[name][0] for name in SYSTEMS.values()]
    (HERE / "samples.md").write_text(samples(first) + "\n")
    shutil.copyfile(first[-1].directory / "figures" / "attention-3.png", HERE / "attention.png")


def samples(runs: Sequence[RunRecord]) -> str:
    """Return a Markdown table of the translations of equally spaced test sentences."""
    every = max(1, len(runs[0].predictions) // SAMPLES)
    lines = [["English", "reference", *SYSTEMS.values()], ["---"] * (2 + len(SYSTEMS))]
    sentences = list(zip(*(run.predictions for run in runs), strict=True))
    for outputs in sentences[::every][:SAMPLES]:
        assert len({output.source for output in outputs}) == 1, "the systems have different test splits"
        lines.append([outputs[0].source, outputs[0].reference, *(output.hypothesis for output in outputs)])
    return "\n".join(f"| {' | '.join(map(escape_markdown, line))} |" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
