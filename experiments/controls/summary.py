"""Print the table of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.results_file import format_results, read_results

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
MECHANISMS = runpy.run_path(str(HERE.parent / "mechanisms" / "summary.py"))
"""The summary of the mechanisms on the same task, which reads evaluations and prints tables."""


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        study = collect([Path(runs)])
        RESULTS.write_text(
            format_results(replace(study, runs=[MECHANISMS["with_lengths"](run) for run in study.runs]))
        )
    variants = MECHANISMS["by_variant"](read_results(RESULTS).runs)
    print(MECHANISMS["table"](variants, {}))


if __name__ == "__main__":
    main(*sys.argv[1:])
