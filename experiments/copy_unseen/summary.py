"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.comparison import compare
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
RESULTS = Path(__file__).with_name("results.csv")
METRICS = ("test/exact_match", "test/token_accuracy")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        RESULTS.write_text(format_results(collect([Path(runs)])))
    study = replace(read_results(RESULTS), selected_metrics=METRICS)
    print(SHORT["scores"](study))
    print(SHORT["tests"](compare(study, reference="no_pointer")), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
