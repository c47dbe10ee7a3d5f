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
from matplotlib.lines import Line2D

from attnlab.report.collect import collect
from attnlab.report.files import save
from attnlab.report.record import RunRecord
from attnlab.report.style import COLOURS
from attnlab.report.tables import markdown, mean_and_range

HERE = Path(__file__).parent
RESULTS, PREFIXES = HERE / "results.csv", HERE / "prefixes.csv"
SOLVED = 99  # exact match in %
COLUMNS = (
    "task",
    "heads",
    "latches",
    "gate_bias",
    "learning_rate",
    "train_size",
    "seed",
    "exact_match_same",
    "exact_match_longer",
    "parameters",
    "steps",
    "minutes",
    "cpu",
    "commit",
)
SETTINGS = COLUMNS.index("seed")
"""Number of columns that name a setting."""
TASKS = ("copy", "reverse", "duplicate", "reversed_addition", "sort")
LABELS = ("no latches", "half of the bits are latches", "and three heads that start apart")
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 800, 1000, 1600)
"""Numbers of first tokens for which prefixes.csv has the share of outputs without an error."""


def main(*runs: str) -> None:
    """Print Markdown."""
    if runs:
        write_results([Path(folder) for folder in runs])
        save(draw(), HERE / "prefixes.svg")
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = (
        "heads",
        "latches",
        "learning rate",
        "training pairs",
        "training lengths [%]",
        "longer [%]",
        "seeds with at least 99 %",
        "steps",
    )
    cells = []
    for settings in dict.fromkeys(settings_of(row) for row in rows):
        own = [row for row in rows if settings_of(row) == settings]
        task, heads, latches, _, rate, train_size = settings
        same, longer = (
            [100 * float(row[f"exact_match_{name}"]) for row in own] for name in ("same", "longer")
        )
        numbers = [
            heads,
            f"{100 * float(latches):g} %",
            f"{float(rate):g}",
            f"{int(train_size):,}",
            mean_and_range(same, digits=1),
            mean_and_range(longer, digits=1),
            f"{sum(score >= SOLVED for score in longer)} of {len(own)}",
            f"{int(own[0]['steps']):,}",
        ]
        cells.append([task, *numbers])
    print(markdown(pd.DataFrame(cells, columns=["task", *names]).set_index("task")))


def write_results(folders: list[Path]) -> None:
    """Write results.csv, one line for each run, and prefixes.csv, one for each run and number of tokens."""
    runs = sorted(
        collect(folders).finished,
        key=lambda run: (TASKS.index(run.config["data"]["task"]), settings_of_run(run), run.seed),
    )
    with RESULTS.open("w", newline="") as results, PREFIXES.open("w", newline="") as prefixes:
        rows, curves = (csv.writer(file, lineterminator="\n") for file in (results, prefixes))
        rows.writerow(COLUMNS)
        curves.writerow((*COLUMNS[:SETTINGS], "seed", "tokens", "right"))
        for run in runs:
            settings_and_seed = (*settings_of_run(run), run.seed)
            scores = [round(run.scores[f"test/{name}/exact_match"], 4) for name in ("same", "longer")]
            minutes = round((run.seconds or 0) / 60, 2)
            numbers = (run.parameters, run.steps, minutes, run.cpu, run.commit)
            rows.writerow((*settings_and_seed, *scores, *numbers))
            curves.writerows((*settings_and_seed, tokens, share) for tokens, share in right_prefixes(run))


def settings_of_run(run: RunRecord) -> tuple[str, int, float, float, float, int]:
    """Return the settings of a run in the order of the columns."""
    data, decoder, attention = run.config["data"], run.config["decoder"], run.config["attention"]
    bits = (attention["heads"], decoder["latches"], attention["score"]["gate_bias"])
    return data["task"], *bits, run.config["optimizer"]["lr"], data["train_size"]


def settings_of(row: dict[str, str]) -> tuple[str, ...]:
    """Return the settings of a row of the CSV files."""
    return tuple(row[column] for column in COLUMNS[:SETTINGS])


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
    with PREFIXES.open(newline="") as file:
        rows = list(csv.DictReader(file))
    tasks = [task for task in TASKS if any(row["task"] == task for row in rows)]
    figure = Figure(figsize=(2.2 * len(tasks), 2.6), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for axes, task in zip(panels, tasks, strict=True):
        own = [row for row in rows if row["task"] == task]
        for run in dict.fromkeys((*settings_of(row), row["seed"]) for row in own):
            of_run = [row for row in own if (*settings_of(row), row["seed"]) == run]
            line = [(int(row["tokens"]), 100 * float(row["right"])) for row in of_run]
            colour = COLOURS[2 if run[1] == "3" else int(float(run[2]) > 0)]
            axes.plot(*zip(*line, strict=True), color=colour, alpha=0.6, linewidth=1)
        trained = 10 if task == "reversed_addition" else 8
        axes.axvline(trained, color="0.6", linestyle=":")  # longest source of training, in symbols or digits
        axes.set(title=task, xscale="log", xlabel="tokens", ylim=(0, 102))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("right up to there, %")
    lines = [
        Line2D([], [], color=colour, label=label) for colour, label in zip(COLOURS, LABELS, strict=False)
    ]
    figure.legend(handles=lines, loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
