"""Print the table of this folder's README from results.csv.

python summary.py [RUNS ...]: with folders of run directories, write results.csv first.
"""

import csv
import sys
from pathlib import Path

from attnlab.data.datasets.scan import SPLITS
from attnlab.report.collect import collect
from attnlab.report.statistics import estimate
from attnlab.report.tables import Cell, Column, Table

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = (
    "split",
    "network",
    "seed",
    "same",
    "exact_match",
    "parameters",
    "steps",
    "minutes",
    "cpu",
    "commit",
)
PUBLISHED = {
    ("simple", "none"): "99.8",
    ("length", "none"): "13.8",
    ("length", "additive"): "20.8, a GRU",
    ("add_jump", "none"): "0.1",
}
"""Exact match in % of Lake & Baroni (2018)."""


def main(*runs: str) -> None:
    """Print Markdown."""
    if runs:
        write_results([Path(folder) for folder in runs])
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    cells = []
    for split, network in dict.fromkeys((row["split"], row["network"]) for row in rows):
        own = [row for row in rows if (row["split"], row["network"]) == (split, network)]
        scores, same = ([100 * float(row[key]) for row in own] for key in ("exact_match", "same"))
        minutes = sum(float(row["minutes"]) for row in own) / len(own)
        texts = (
            PUBLISHED.get((split, network), ""),
            mean_and_interval(scores),
            " · ".join(f"{score:.1f}" for score in scores),
            "" if SPLITS[split] == "same" else mean_and_interval(same),
            f"{int(own[0]['parameters']):,}",
            f"{int(own[0]['steps']):,}",
            f"{minutes:.0f}",
        )
        cells.append([Cell(split), Cell(network), *map(Cell, texts)])
    names = (
        "published [%]",
        "test set [%]",
        "each seed [%]",
        "commands like those of training [%]",
        "parameters",
        "updates",
        "minutes",
    )
    columns = [*(Column(name, numeric=False) for name in ("split", "network")), *map(Column, names)]
    print(Table("scan", "Exact match, mean over seeds with 95 % interval", columns, cells, []).markdown())


def write_results(folders: list[Path]) -> None:
    """Write results.csv, one line for each run."""
    runs = collect(folders).finished
    splits = list(SPLITS)
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for run in sorted(
            runs, key=lambda run: (splits.index(run.config["data"]["split"]), run.config["variant"], run.seed)
        ):
            split = run.config["data"]["split"]
            scores = [round(run.scores[f"test/{name}/exact_match"], 4) for name in ("same", SPLITS[split])]
            minutes = round((run.seconds or 0) / 60, 2)
            numbers = (run.parameters, run.steps, minutes, run.cpu, run.commit)
            writer.writerow((split, run.config["variant"], run.seed, *scores, *numbers))


def mean_and_interval(values: list[float]) -> str:
    """Return the mean with its 95 % interval over seeds, which a single seed does not have."""
    result = estimate(values, bounds=(0, 100))
    if result.low is None or result.high is None:
        return f"{result.mean:.1f}"
    return f"{result.mean:.1f} [{result.low:.1f}, {result.high:.1f}]"


if __name__ == "__main__":
    main(*sys.argv[1:])
