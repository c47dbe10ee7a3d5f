"""Print the table of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from attnlab.report.collect import collect
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import SEPARATOR, RunRecord

RESULTS = Path(__file__).with_name("results.csv")
LOW = {"ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"}
COLUMNS = ("data", "recipe", "seeds", "WER, dev", "WER, test", "SER, dev", "SER, test", "steps", "parameters")


def percentages(runs: list[RunRecord]) -> list[float]:
    """Return the means over runs of the word and the symbol error rates, development and test, in percent."""
    splits = ("val", "test")
    words = [100 * (1 - fmean(run.scores[f"{split}/exact_match"] for run in runs)) for split in splits]
    symbols = [100 * fmean(run.scores[f"{split}/edit_distance"] for run in runs) for split in splits]
    return words + symbols


def main(folder: str | None = None) -> None:
    """Print Markdown, one row per data set and recipe, and the macro average over the ten low languages."""
    if folder is not None:
        study = collect([Path(folder)])
        RESULTS.write_text(format_results(replace(study, runs=study.finished)))
    groups: defaultdict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for run in read_results(RESULTS).finished:
        data, _, name = run.variant.partition(SEPARATOR)
        groups[name.removeprefix("name="), data].append(run)
    rates: defaultdict[str, dict[str, list[float]]] = defaultdict(dict)
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"| --- | --- |{' ---: |' * (len(COLUMNS) - 2)}")
    for (recipe, data), runs in sorted(groups.items()):
        rates[recipe][data] = percentages(runs)
        cells = [data, recipe, str(len(runs)), *(f"{rate:.1f}" for rate in rates[recipe][data])]
        print(f"| {' | '.join(cells)} | {runs[0].steps:,} | {runs[0].parameters:,} |")
    for recipe, rows in sorted(rates.items()):
        if rows.keys() >= LOW:
            means = [fmean(rows[data][i] for data in LOW) for i in range(4)]
            print(f"| mean of low | {recipe} | | {' | '.join(f'{rate:.1f}' for rate in means)} | | |")


if __name__ == "__main__":
    main(*sys.argv[1:])
