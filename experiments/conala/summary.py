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
TESTED = ("val/loss", "val/conala_bleu")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        RESULTS.write_text(format_results(collect([Path(runs)])))
    study = read_results(RESULTS)
    shown = replace(study, selected_metrics=(*TESTED, "attention/effective_positions"))
    print(SHORT["scores"](shown, parameters=True))
    print(SHORT["tests"](compare(replace(study, selected_metrics=TESTED), reference="none")), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
