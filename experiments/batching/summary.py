"""Print the tables and the comparisons of this folder's README from results.csv and costs.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import csv
import runpy
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

from attnlab.report.collect import collect
from attnlab.report.comparison import compare_pair, correct
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
METRICS = {
    "reverse": ("test/exact_match", "test/loss"),
    "ice_g2p": ("test/loss", "test/wer"),
    "tur_inflection": ("test/loss", "test/wer"),
    "conala": ("val/loss", "val/bleu"),
    "eng_mar": ("test/loss", "test/chrf"),
}
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
    print(costs())
    if not results.exists():
        return
    study = read_results(results)
    for family in FAMILIES:
        comparisons = []
        for data in family:
            each = replace(study, runs=[run for run in study.runs if run.variant.startswith(f"{data}-")])
            if not each.runs:
                continue
            print(SHORT["scores"](replace(each, selected_metrics=METRICS[data])))
            score, pairs = DECLARED[data]
            tested = replace(each, selected_metrics=(score,))
            for one, other in pairs:
                comparisons += compare_pair(tested, f"{data}-{one}", f"{data}-{other}")
        print(SHORT["tests"](correct(comparisons)))


def costs() -> str:
    """Return a table of the time of a step and the share of padding."""
    steps: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with (HERE / "costs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            steps[row["data"], row["pool"]].append((float(row["ms"]), float(row["padding"])))
    lines = [
        "| data | pool | padding | ms per step | of random order |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for (data, pool), rounds in steps.items():
        milliseconds = median(each for each, _ in rounds)
        share = milliseconds / median(each for each, _ in steps[data, "random"])
        padding = 100 * rounds[0][1]
        lines.append(f"| {data} | {pool} | {padding:.0f} % | {milliseconds:.1f} | {share:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
