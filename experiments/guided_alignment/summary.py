"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
SUMMARISE = runpy.run_path(str(HERE.parent / "short_tables.py"))["summarise"]
METRICS = (
    "test/attention/alignment_accuracy",
    "test/attention/alignment_error",
    "test/token_accuracy",
    "test/exact_match",
    "test/loss",
)


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    SUMMARISE(HERE / "results.csv", runs, shown=METRICS, tested=METRICS, reference="weight_0")


if __name__ == "__main__":
    main(*sys.argv[1:])
