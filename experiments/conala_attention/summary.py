"""Print the tables of this folder's README from results.csv.

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
METRICS = ("val/conala_bleu", "val/loss")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        RESULTS.write_text(format_results(replace(collect([Path(runs)]), selected_metrics=METRICS)))
    study = read_results(RESULTS)
    print(SHORT["scores"](replace(study, selected_metrics=METRICS), parameters=True))
    tested = replace(study, selected_metrics=METRICS[:1])
    print(SHORT["tests"](compare(tested, reference="mean")), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
