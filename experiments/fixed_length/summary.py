"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories of study=bottleneck, write results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnlab.report.collect import collect
from attnlab.report.comparison import compare_pair, correct
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import estimate
from attnlab.report.tables import format_estimate, markdown

HERE = Path(__file__).parent
SHORT = runpy.run_path(str(HERE.parent / "short_tables.py"))
METRIC = "test/exact_match"
MECHANISMS = ("additive", "none_matched")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        (HERE / "results.csv").write_text(format_results(collect([Path(runs)])))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=(METRIC,))
    scores: dict[str, list[float]] = {}
    for run in study.finished:
        scores.setdefault(run.variant, []).append(100 * run.scores[METRIC])
    lengths = sorted({int(name.rpartition("length")[2]) for name in scores})
    cells = {
        name: [
            format_estimate(estimate(scores[f"{name}-length{length}"], (0, 100)), digits=1)
            for length in lengths
        ]
        for name in MECHANISMS
    }
    columns = [f"{length} tokens [%]" for length in lengths]
    print(markdown(pd.DataFrame.from_dict(cells, "index", columns=columns).rename_axis("attention")))
    pairs = [[f"{name}-length{length}" for name in MECHANISMS] for length in lengths]
    print(SHORT["tests"](correct([row for pair in pairs for row in compare_pair(study, *pair)])))


if __name__ == "__main__":
    main(*sys.argv[1:])
