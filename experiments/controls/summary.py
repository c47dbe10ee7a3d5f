"""Print the table of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

from __future__ import annotations

import csv
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
MECHANISMS = runpy.run_path(str(HERE.parent / "mechanisms" / "summary.py"))
"""The summary of the mechanisms on the same task, which reads runs and prints tables."""
RANGES = MECHANISMS["RANGES"]


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        write_results(Path(runs))
    results: dict[str, list[object]] = {}
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            result = MECHANISMS["Result"](
                seed=int(row["seed"]),
                parameters=int(row["parameters"]),
                exact={lengths: float(row[lengths]) for lengths in RANGES},
                aligned=float(row["alignment_accuracy"]),
                steps=int(row["steps_to_99"]) if row["steps_to_99"] else None,
            )
            results.setdefault(row["variant"], []).append(result)
    print(MECHANISMS["table"](results, {}).markdown())


def write_results(runs: Path) -> None:
    """Write results.csv from trained and evaluated runs."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("variant", "seed", "parameters", *RANGES, "alignment_accuracy", "steps_to_99"))
        for variant, results in MECHANISMS["read"](runs).items():
            for run in results:
                row = (run.seed, run.parameters, *run.exact.values(), run.aligned, run.steps or "")
                writer.writerow((variant, *row))


if __name__ == "__main__":
    main(*sys.argv[1:])
