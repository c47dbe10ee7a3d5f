"""Print the tables of this folder's README from results.csv, and draw profiles.svg.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import csv
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnlab.report.aggregates import (
    Scores,
    interquartile_mean,
    probability_of_improvement,
    stratified_bootstrap,
)
from attnlab.report.collect import collect
from attnlab.report.files import save
from attnlab.report.style import COLOURS
from attnlab.report.tables import markdown

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
SAME = "same"
REFERENCE = "additive"
LEARNED = 0.9
"""Smallest mean exact match on the test set `same` of a model that has learned the task."""
THRESHOLDS = np.linspace(0, 1, 101)


class Score(NamedTuple):
    """Scores of one run on one test set."""

    task: str
    model: str
    seed: int
    test_set: str
    exact_match: float
    alignment_accuracy: str
    parameters: int
    seconds: float
    commit: str


class Atlas:
    """The scores of the seeds with which every model has a run on every task.

    Attributes:
        models: names of the models.
        cells: exact match of each seed by (task, test set, model).
        seeds: the seeds.
    """

    def __init__(self, scores: Iterable[Score]) -> None:
        runs: dict[tuple[str, str, str], dict[int, float]] = {}
        for score in scores:
            runs.setdefault((score.task, score.test_set, score.model), {})[score.seed] = score.exact_match
        self.models = [*dict.fromkeys(model for _, _, model in runs)]
        tests = dict.fromkeys((task, test_set) for task, test_set, _ in runs)
        keys = [(*test, model) for test in tests for model in self.models]
        self.seeds = sorted(set.intersection(*({*runs.get(key, {})} for key in keys)))
        if not self.seeds:
            raise SystemExit(
                "There is no seed with which every model has a run on every task: train the others"
            )
        self.cells = {key: [runs[key][seed] for seed in self.seeds] for key in keys}

    def tests(self, *, shifted: bool) -> list[tuple[str, str]]:
        """Return the (task, test set) pairs in or outside the training distribution."""
        return [*dict.fromkeys(key[:2] for key in self.cells if (key[1] != SAME) == shifted)]

    def matrix(self, model: str, *, shifted: bool) -> Scores:
        """Return the exact match of a model, [seeds, tasks].

        Each task counts once: its shifted test sets are averaged, and tasks that no model learned are left
        out of them.
        """
        tests = self.tests(shifted=shifted)
        tasks = dict.fromkeys(task for task, _ in tests if not shifted or self.learned_by(task))
        columns = [[self.cells[*test, model] for test in tests if test[0] == task] for task in tasks]
        return np.array([np.mean(column, axis=0) for column in columns]).T

    def learned_by(self, task: str) -> list[str]:
        """Return the models that have learned a task."""
        return [model for model in self.models if self.mean(task, SAME, model) >= LEARNED]

    def mean(self, task: str, test_set: str, model: str) -> float:
        """Return the mean exact match over seeds."""
        return float(np.mean(self.cells[task, test_set, model]))


def main(runs: str | None = None) -> None:
    """Print Markdown and draw the figure."""
    if runs is not None:
        write_results(Path(runs))
    with RESULTS.open(newline="") as file:
        atlas = Atlas(map(read_row, csv.DictReader(file)))
    seeds = "one seed" if len(atlas.seeds) == 1 else f"mean of {len(atlas.seeds)} seeds"
    print(f"### Exact match in %, like training → shifted, {seeds}\n\n{scores_table(atlas)}")
    print(f"### Over all tasks\n\n{aggregates_table(atlas)}")
    print("![Share of runs with an exact match above each threshold](profiles.svg)\n")
    if runs is not None:
        save(draw(atlas), HERE / "profiles.svg")


def write_results(runs: Path) -> None:
    """Write results.csv from trained runs, one line for each run and test set."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Score._fields)
        for run in collect([runs]).finished:
            task, model = run.config["task"], run.config["model"]
            for metric, value in run.scores.items():
                split, _, name = metric.partition("/exact_match")
                if name or not split.startswith("test/") or not metric.endswith("/exact_match"):
                    continue
                aligned = run.scores.get(f"{split}/attention/alignment_accuracy", "")
                costs = (run.parameters, run.seconds, run.commit)
                writer.writerow((task, model, run.seed, split.removeprefix("test/"), value, aligned, *costs))


def read_row(row: dict[str, str]) -> Score:
    """Return the scores of a line of results.csv."""
    return Score(
        **{
            **row,
            "seed": int(row["seed"]),
            "exact_match": float(row["exact_match"]),
            "parameters": int(row["parameters"]),
            "seconds": float(row["seconds"]),
        }  # type: ignore[arg-type]
    )


def scores_table(atlas: Atlas) -> str:
    """Return a Markdown table with one row per shifted test set and one column per model."""
    columns = ["task", "shifted test set", *atlas.models]
    rows = []
    for task, test_set in atlas.tests(shifted=True):
        pairs = ([atlas.mean(task, each, model) for each in (SAME, test_set)] for model in atlas.models)
        rows.append([task, test_set, *(f"{100 * same:.0f}→{100 * other:.0f}" for same, other in pairs)])
    return markdown(pd.DataFrame(rows, columns=columns).set_index(columns[:2]))


def aggregates_table(atlas: Atlas) -> str:
    """Return a Markdown table with the aggregates of each model, in and outside the training distribution."""
    columns = ["model", "tasks learned"]
    columns += [
        f"{name}, {where}"
        for where in ("same", "shifted")
        for name in ("interquartile mean [%]", f"probability of improvement over {REFERENCE} [%]")
    ]
    rows = []
    for model in atlas.models:
        same = atlas.tests(shifted=False)
        row = [model, f"{sum(atlas.mean(*test, model) >= LEARNED for test in same)} of {len(same)}"]
        for shifted in (False, True):
            scores, reference = (atlas.matrix(name, shifted=shifted) for name in (model, REFERENCE))
            if scores.size == 0:  # no model learned a task
                row += ["", ""]
                continue
            row.append(interval(interquartile_mean, scores))
            row.append("" if model == REFERENCE else interval(probability_of_improvement, scores, reference))
        rows.append(row)
    note = (
        "Definitions of rliable (Agarwal et al., 2021); in brackets: 95 % percentile interval of the "
        "stratified bootstrap, which is too narrow for few seeds. Learned: mean exact match on the test set "
        f"same of at least {100 * LEARNED:.0f} %. Shifted: each task once, with the mean of its shifted test "
        "sets; tasks that no model learned are left out."
    )
    return markdown(pd.DataFrame(rows, columns=columns).set_index("model"), [note])


def interval(statistic: Callable[..., Scores], *groups: Scores) -> str:
    """Return a statistic in percent with its bootstrap interval."""
    low, high = stratified_bootstrap(statistic, *groups)
    return f"{100 * statistic(*groups):.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def performance_profile(scores: Scores, thresholds: Scores) -> Scores:
    """Return the share of the scores [..., R, M] above each threshold [T]; shape [..., T] (rliable)."""
    above = scores[..., None] > thresholds  # [..., R, M, T]
    return np.asarray(above.mean(axis=(-3, -2)))


def draw(atlas: Atlas) -> Figure:
    """Draw the performance profiles in and outside the training distribution."""
    figure = Figure(figsize=(7.5, 3.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, shifted in zip(panels, (False, True), strict=True):
        for number, model in enumerate(atlas.models):
            scores = atlas.matrix(model, shifted=shifted)
            if scores.size == 0:  # no model learned a task
                continue
            profile = partial(performance_profile, thresholds=THRESHOLDS)
            style = {"color": COLOURS[number % len(COLOURS)], "label": model}
            axes.plot(100 * THRESHOLDS, 100 * profile(scores), drawstyle="steps-post", **style)
        axes.set(title="other distributions" if shifted else "training distribution", xlabel="exact match, %")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="runs above, %", ylim=(0, 102))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right", frameon=False)
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
