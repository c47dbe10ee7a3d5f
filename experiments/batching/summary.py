"""Print the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.comparison import compare_pair, correct
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
DECLARED = {
    "reverse": (
        "test/exact_match",
        [("pool_50", "random"), ("pool_50", "random_time"), ("pool_4", "random")],
    ),
    "ice_g2p": ("test/loss", [("pool_3", "random"), ("pool_3", "random_time")]),
    "tur_inflection": ("test/loss", [("pool_4", "random"), ("pool_4", "random_time")]),
    "conala": ("val/loss", [("pool_4", "random"), ("pool_4", "random_time")]),
    "eng_mar": ("test/loss", [("pool_10", "random"), ("pool_10", "random_time")]),
}
"""The score that is tested, and the pairs of orders, by data set."""

FAMILIES = ("reverse", "ice_g2p"), ("tur_inflection", "conala", "eng_mar")
"""Data sets whose tests were declared, and are corrected, together."""


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    results = HERE / "results.csv"
    if runs is not None:
        study = collect([Path(runs)])
        results.write_text(format_results(replace(study, runs=study.finished)))
    if not results.exists():
        print("**No results file.** The runs are not done.\n")
        return
    study = read_results(results)
    for family in FAMILIES:
        comparisons = []
        for data in family:
            if not any(run.variant.startswith(f"{data}-") for run in study.runs):
                continue
            score, pairs = DECLARED[data]
            tested = replace(study, selected_metrics=(score,))
            for one, other in pairs:
                comparisons += compare_pair(tested, f"{data}-{one}", f"{data}-{other}")
        print(SHORT["tests"](correct(comparisons)))


if __name__ == "__main__":
    main(*sys.argv[1:])
