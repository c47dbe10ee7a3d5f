"""Print the table of this folder's README from results.csv.

python summary.py [RUNS ...]: with folders of run directories of experiment=lengths, write results.csv and
prefixes.csv first, and draw prefixes.svg.
"""

import csv
import sys
from pathlib import Path
from statistics import fmean

import pandas as pd
from matplotlib.figure import Figure

from attnlab.report.collect import collect
from attnlab.report.files import save
from attnlab.report.record import RunRecord
from attnlab.report.style import COLOURS
from attnlab.report.tables import markdown, mean_and_range

HERE = Path(__file__).parent
RESULTS, PREFIXES = HERE / "results.csv", HERE / "prefixes.csv"
SOLVED = 99  # exact match in %
AGAIN = 100
"""Step from the seed of a training to that of its repetition."""
SCORES = {"test/same/exact_match": "training_lengths", "test/longer/exact_match": "longer"}
COLUMNS = ("task", "seed", *SCORES.values(), "parameters", "steps", "minutes", "cpu", "commit")
TASKS = ("copy", "reverse", "duplicate", "reversed_addition")
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 800, 1000, 1600)
"""Numbers of first tokens for which prefixes.csv has the share of outputs without an error."""


def main(*runs: str) -> None:
    """Print Markdown."""
    if runs:
        write_results([Path(folder) for folder in runs])
        save(draw(), HERE / "prefixes.svg")
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    cells = []
    for task in TASKS:
        own = [row for row in rows if row["task"] == task]
        first = [row for row in own if int(row["seed"]) < AGAIN]
        networks = counted_networks(own)
        cells.append(
            [
                task,
                mean_and_range([100 * float(row["training_lengths"]) for row in first], digits=1),
                mean_and_range([100 * float(row["longer"]) for row in first], digits=1),
                *(
                    f"{sum(100 * float(row['longer']) >= SOLVED for row in each)} of {len(each)}"
                    for each in (first, networks)
                ),
            ]
        )
    columns = ["task", "training lengths [%]", "longer [%]", "at least 99 %", "the same, trained again"]
    print(markdown(pd.DataFrame(cells, columns=columns).set_index("task")))


def counted_networks(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the network of each seed: the last one, since only those that failed are trained again."""
    last = {int(row["seed"]) % AGAIN: row for row in sorted(rows, key=lambda row: int(row["seed"]))}
    return [*last.values()]


def write_results(folders: list[Path]) -> None:
    """Write results.csv, one line for each run, and prefixes.csv, one for each run and number of tokens."""
    runs = sorted(collect(folders).finished, key=lambda run: (TASKS.index(task_of(run)), run.seed))
    with RESULTS.open("w", newline="") as results, PREFIXES.open("w", newline="") as prefixes:
        rows, curves = (csv.writer(file, lineterminator="\n") for file in (results, prefixes))
        rows.writerow(COLUMNS)
        curves.writerow(("task", "seed", "tokens", "right"))
        for run in runs:
            scores = [round(run.scores[name], 4) for name in SCORES]
            minutes = round((run.seconds or 0) / 60, 2)
            numbers = (run.parameters, run.steps, minutes, run.cpu, run.commit)
            rows.writerow((task_of(run), run.seed, *scores, *numbers))
            curves.writerows((task_of(run), run.seed, tokens, share) for tokens, share in right_prefixes(run))


def task_of(run: RunRecord) -> str:
    """Return the task of a run."""
    return str(run.config["data"]["task"])


def right_prefixes(run: RunRecord) -> list[tuple[int, float]]:
    """Return for numbers of tokens the share of long outputs without an error in their first tokens."""
    pairs = [(each.hypothesis.split(), each.references[0].split()) for each in run.predictions["test/longer"]]
    longest = max(len(reference) for _, reference in pairs)
    return [
        (n, fmean(hypothesis[:n] == reference[:n] for hypothesis, reference in pairs))
        for n in LENGTHS
        if n <= longest
    ]


def draw() -> Figure:
    """Draw the shares of prefixes.csv, a panel for each task and a line for each run."""
    data = pd.read_csv(PREFIXES)
    figure = Figure(figsize=(2.2 * len(TASKS), 2.4), layout="constrained")
    panels = figure.subplots(1, len(TASKS), sharey=True)
    for axes, task in zip(panels, TASKS, strict=True):
        for _, run in data[data["task"] == task].groupby("seed"):
            axes.plot(run["tokens"], 100 * run["right"], color=COLOURS[0], alpha=0.6, linewidth=1)
        trained = 10 if task == "reversed_addition" else 8
        axes.axvline(trained, color="0.6", linestyle=":")  # longest source of training, in symbols or digits
        axes.set(title=task, xscale="log", xlabel="tokens", ylim=(0, 102))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("right up to there, %")
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
