"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
SUMMARISE = runpy.run_path(str(HERE.parent / "short_tables.py"))["summarise"]
METRICS = ("test/exact_match", "test/token_accuracy")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    SUMMARISE(HERE / "results.csv", runs, shown=METRICS, tested=METRICS, reference="no_pointer")


if __name__ == "__main__":
    main(*sys.argv[1:])
