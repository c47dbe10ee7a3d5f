"""Print the table of this folder's README from results.csv.

python summary.py [RUNS ...]: with folders of run directories of study=formal, write results.csv first.
"""

import csv
import sys
from pathlib import Path
from statistics import fmean

import pandas as pd

from attnlab.files.predictions import Prediction
from attnlab.report.collect import collect
from attnlab.report.tables import markdown, mean_and_range
from attnlab.report.variants import SEPARATOR

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
END = "<eos>"
TERMINATED = ("stack_manipulation", "binary_addition", "binary_multiplication")
"""Tasks whose answers have no length that follows from the source's: their end counts as a token."""
TASKS = {
    **dict.fromkeys(("even_pairs", "parity_check", "cycle_navigation", "modular_arithmetic"), "regular"),
    **dict.fromkeys(
        ("modular_arithmetic_brackets", "solve_equation", "stack_manipulation", "reverse_string"),
        "context-free",
    ),
    **dict.fromkeys(
        (
            *("duplicate_string", "missing_duplicate", "odds_first", "binary_addition"),
            *("binary_multiplication", "compute_sqrt", "bucket_sort"),
        ),
        "context-sensitive",
    ),
}
"""Class of the language of each task."""
SOLVED = 0.9
COLUMNS = ("task", "attention", "seed", "accuracy_same", "accuracy_longer", "parameters", "steps", "commit")


def main(*runs: str) -> None:
    """Print Markdown."""
    if runs:
        write_results([Path(folder) for folder in runs])
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    attentions = [*dict.fromkeys(row["attention"] for row in rows)]
    print(f"✓: solved, a mean of at least {100 * SOLVED:.0f} %.\n")
    cells = []
    for task, language in TASKS.items():
        scores = {name: longer_accuracies(rows, task, name) for name in attentions}
        shown = ", ".join(f"{name} {percent(values)}" for name, values in scores.items() if values)
        if shown:
            cells.append([task, language, shown])
    columns = ["task", "language", "accuracies"]
    print(markdown(pd.DataFrame(cells, columns=columns).set_index(columns[:2])))


def longer_accuracies(rows: list[dict[str, str]], task: str, attention: str) -> list[float]:
    """Return the accuracy of each seed of a network on longer sources."""
    return [
        float(row["accuracy_longer"]) for row in rows if (row["task"], row["attention"]) == (task, attention)
    ]


def write_results(folders: list[Path]) -> None:
    """Write results.csv from trained runs, one line each."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for run in collect(folders).finished:
            task, _, attention = run.variant.partition(SEPARATOR)[0].partition("-")
            accuracies = [
                accuracy(run.predictions[f"test/{name}"], ended=task in TERMINATED)
                for name in ("same", "longer")
            ]
            writer.writerow((task, attention, run.seed, *accuracies, run.parameters, run.steps, run.commit))


def accuracy(predictions: list[Prediction], *, ended: bool) -> float:
    """Return the mean over outputs of the share of reference tokens that the output has at their position.

    The lengths of the sources are uniform, so that this is also the mean over lengths of the paper.
    """
    shares = []
    for prediction in predictions:
        hypothesis, reference = prediction.hypothesis.split(), prediction.references[0].split()
        if ended:
            hypothesis, reference = [*hypothesis, END], [*reference, END]
        right = sum(ours == theirs for ours, theirs in zip(hypothesis, reference, strict=False))
        shares.append(right / len(reference))
    return fmean(shares)


def percent(values: list[float]) -> str:
    """Return the mean with the lowest and the highest if they differ, and a mark if the task is solved."""
    shown = mean_and_range([100 * value for value in values], digits=0)
    return f"{shown} ✓" if fmean(values) >= SOLVED else shown


if __name__ == "__main__":
    main(*sys.argv[1:])
