"""Print the table of this folder's README from results.csv.

python summary.py [RUNS ...]: with folders of run directories, write results.csv first.
"""

import csv
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pandas as pd

from attnlab.data.datasets.scan import SPLITS
from attnlab.report.collect import collect
from attnlab.report.record import RunRecord
from attnlab.report.statistics import estimate
from attnlab.report.tables import markdown

RESULTS = Path(__file__).with_name("results.csv")
NETWORKS = ("none", "additive", "actions", "repetitions")
PUBLISHED = {
    ("simple", "none"): "99.7",
    ("length", "none"): "13.8",
    ("length", "repetitions"): "best: 20.8",
    ("add_jump", "none"): "0.1",
}
"""Exact match in % of Lake & Baroni (2018)."""
NEW_PHRASE = re.compile("(walk|look|run|jump) around (left|right) thrice")
"""Phrases that are in no training command of the length split."""
SCORES = {
    "exact_match": "test set",
    "new_phrase": "with a new phrase",
    "known_phrases": "without",
    "same": "like training",
}
COLUMNS = ("split", "network", "seed", *SCORES, "parameters", "steps", "minutes", "cpu", "commit")


def main(*runs: str) -> None:
    """Print Markdown."""
    if runs:
        write_results([Path(folder) for folder in runs])
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    cells = []
    for split, network in dict.fromkeys((row["split"], row["network"]) for row in rows):
        own = [row for row in rows if (row["split"], row["network"]) == (split, network)]
        texts = (
            PUBLISHED.get((split, network), ""),
            *(mean_and_interval([row[score] for row in own]) for score in SCORES),
        )
        cells.append([split, network, *texts])
    columns = ["split", "network", "published [%]", *(f"{name} [%]" for name in SCORES.values())]
    print(markdown(pd.DataFrame(cells, columns=columns).set_index(["split", "network"])))


def write_results(folders: list[Path]) -> None:
    """Write results.csv, one line for each run."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for run in sorted(collect(folders).finished, key=order):
            split, network, seed = run.config["data"]["split"], run.config["variant"], run.seed
            numbers = (run.parameters, run.steps, round((run.seconds or 0) / 60, 2), run.cpu, run.commit)
            writer.writerow((split, network, seed, *scores(run, SPLITS[split]), *numbers))


def order(run: RunRecord) -> tuple[int, int, int]:
    """Return the place of a run in the table."""
    split, network = run.config["data"]["split"], run.config["variant"]
    return list(SPLITS).index(split), NETWORKS.index(network), run.seed


def scores(run: RunRecord, test: str) -> list[float | str]:
    """Return the values of `SCORES`; empty where a split has no such commands."""
    phrases: list[float | str] = ["", ""]
    if test == "longer":
        right: dict[bool, list[bool]] = {True: [], False: []}
        for each in run.predictions["test/longer"]:
            right[NEW_PHRASE.search(each.source) is not None].append(each.hypothesis in each.references)
        phrases = [round(fmean(values), 6) if values else "" for values in right.values()]
    same = "" if test == "same" else round(run.scores["test/same/exact_match"], 6)
    return [round(run.scores[f"test/{test}/exact_match"], 6), *phrases, same]


def mean_and_interval(values: Sequence[str]) -> str:
    """Return the mean in % with its 95 % interval over seeds, which a single seed does not have."""
    if "" in values:
        return ""
    result = estimate([100 * float(value) for value in values], bounds=(0, 100))
    if result.low is None or result.high is None or result.low == result.high:
        return f"{result.mean:.1f}"
    return f"{result.mean:.1f} [{result.low:.1f}, {result.high:.1f}]"


if __name__ == "__main__":
    main(*sys.argv[1:])
