"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories of study=conala_steps, write results.csv
first.
"""

import runpy
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.comparison import compare_pair, correct
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
RESULTS = Path(__file__).with_name("results.csv")
BLEU = "val/conala_bleu"
METRICS = (BLEU, "val/conala_exact_match", "val/slot_accuracy", "val/parses", "val/loss")
SHOWN = (BLEU, "val/slot_accuracy", "val/loss")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        collected = replace(collect([Path(runs)]), selected_metrics=METRICS)
        RESULTS.write_text(format_results(collected))
    study = replace(read_results(RESULTS), selected_metrics=SHOWN)
    tested = replace(study, selected_metrics=(BLEU,))
    steps = pairwise(sorted(study.variants))
    comparisons = [row for before, after in steps for row in compare_pair(tested, after, before)]
    than = "the step before"
    print(SHORT["scores"](study, parameters=True, comparisons=correct(comparisons), than=than))


if __name__ == "__main__":
    main(*sys.argv[1:])
