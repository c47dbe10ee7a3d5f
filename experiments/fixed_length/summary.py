"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories of study=bottleneck, write results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.results_file import format_results, read_results

HERE = Path(__file__).parent
SHORT = runpy.run_path(str(HERE.parent / "short_tables.py"))
GRID = runpy.run_path(str(HERE.parent / "grid.py"))
METRIC = "test/exact_match"


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        (HERE / "results.csv").write_text(format_results(collect([Path(runs)])))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=(METRIC,))
    groups = GRID["group"](study)
    lengths = sorted(int(value.removeprefix("length")) for value in groups["additive"])
    values = {f"length{length}": f"{length} tokens [%]" for length in lengths}
    print(GRID["table"](groups, values, METRIC, scale=100))
    print(SHORT["tests"](GRID["compare_at_each"](study, values, "additive", ["none_matched"])))


if __name__ == "__main__":
    main(*sys.argv[1:])
