"""Comparison of mechanisms by the scores of the benchmark: aggregates, tests, tables, a heat table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnlab import __version__
from attnlab.errors import UserError
from attnlab.files.predictions import read_predictions
from attnlab.metrics import registry
from attnlab.report.aggregates import interquartile_mean, probability_of_improvement, stratified_bootstrap
from attnlab.report.benchmark.scores import (
    LEAST_SEEDS,
    REFERENCE,
    SAME,
    STORED,
    Results,
    sentence_counts,
)
from attnlab.report.comparison import Comparison, correct
from attnlab.report.explorer import Sentence, kept_attention
from attnlab.report.resampling import paired_test
from attnlab.report.statistics import Estimate, estimate, t_test_p_value
from attnlab.report.study import Study
from attnlab.report.style import COLOUR_MAP
from attnlab.report.tables import Table, TableColumns, point

EXAMPLES = STORED.with_suffix(".jsonl")
"""Output of the reference for the first test input of each task, with its weights."""
AGGREGATES = (
    "Definitions of rliable (Agarwal et al., 2021), each test set once; in brackets: 95 % percentile "
    "interval of the stratified bootstrap over seeds, which is too narrow for few seeds. Same: test sets "
    "with the distribution of the training data. Shifted: longer inputs, or new combinations."
)
INPUTS = {"same": "inputs like those of training", "shifted": "shifted ones"}
BUILT_IN = "Built in: what a mechanism knows of alignments without training, as its option says."
IMPROVEMENT = f"improvement over {REFERENCE} [%]"
SCORES = "Exact match in %{others}. After a comma: a shifted test set."
CITATION = (
    "To cite: {name}, compared on {tasks} tasks with {seeds} seeds in the attention benchmark, version 1 "
    f"(The attnlab developers, attnlab {__version__}; stored results {{digest}}, {{models}} mechanisms and "
    "controls)."
)
NOT_COMPARABLE = "Not comparable with the other rows, and not to be cited: {violations}."


def examples(runs: Study) -> list[Sentence]:
    """Return the first test input of each task, with the outputs of a run and of the reference."""
    theirs = {(each.source, each.references): each for each in read_predictions(EXAMPLES)}
    kept = {run.config["task"]: kept_attention([run]) for run in reversed(runs.finished)}
    firsts = [predictions[0] for found in kept.values() for _, predictions in found]
    return [
        Sentence(each.source, each.references, [each, theirs.get((each.source, each.references))])
        for each in firsts
    ]


def compare(results: Results, model: str, reference: str = REFERENCE) -> list[Comparison]:
    """Test a model against the reference on every test set, over inputs, as one family.

    See `attnlab.report.resampling.paired_test`. The seeds that both have on all test sets, or else on each,
    are used together.
    """
    comparisons = []
    for (task, split), by_model in results.scores.items():
        ours, theirs = by_model.get(model, {}), by_model.get(reference, {})
        seeds = results.seeds(model, reference) or sorted(ours.keys() & theirs.keys())
        if model == reference or not seeds:
            continue
        metric = ours[seeds[0]].metric
        sides = ([side[seed].counts.astype(float) for seed in seeds] for side in (ours, theirs))
        test = paired_test(sentence_counts(metric), *sides)
        inputs = ours[seeds[0]].inputs
        comparisons.append(
            Comparison(
                f"{split}/{metric}",
                f"{model} ({task})",
                f"{reference} ({task})",
                "sentences",
                len(seeds),
                sentences=inputs,
                noun="inputs",
                **test._asdict(),
            )
        )
    return correct(comparisons)


def seed_differences(results: Results, model: str, *, shifted: bool) -> list[float]:
    """Return the difference of the mean score from the reference, for each seed that both have.

    The mean is over the test sets that are, or are not, shifted.
    """
    return [
        fmean(
            by[model][seed].score - by[REFERENCE][seed].score
            for (_, split), by in results.scores.items()
            if (split not in SAME) == shifted
        )
        for seed in results.seeds(model, REFERENCE)
    ]


def ranking(results: Results) -> Table:
    """Return a table of the models: aggregates over tasks, the best first."""
    models, columns = results.models, TableColumns()
    columns.add("seeds", [point(len(results.seeds(model))) for model in models], digits=0)
    order: list[tuple[float, float]] = []
    for shifted, where in ((False, "same"), (True, "shifted")):
        matrices = [results.matrix(model, shifted=shifted) for model in models]
        if not all(matrix.size for matrix in matrices):
            continue
        reference = results.matrix(REFERENCE, shifted=shifted)
        improvements = [_aggregate(probability_of_improvement, matrix, reference) for matrix in matrices]
        means = [_aggregate(interquartile_mean, matrix) for matrix in matrices]
        order = order or [(-each.mean, -mean.mean) for each, mean in zip(improvements, means, strict=True)]
        columns.add(f"{IMPROVEMENT}, {where}", improvements, digits=0, scale=100)
        columns.add(f"interquartile mean, {where}", means, digits=1)
    notes = [AGGREGATES]
    if others := sorted({each.model for each in results} - {*models}):
        notes.append(f"Not ranked, for lack of some test sets: {', '.join(others)}.")
    table = columns.table("ranking", "All tasks", {"mechanism": models}, notes)
    places = sorted(range(len(order)), key=lambda place: order[place])
    return replace(table, text=table.text.iloc[places], values=table.values.iloc[places])


def scores_table(results: Results) -> Table:
    """Return a table with the mean scores of every model on every test set."""
    models, columns = [*ranking(results).text.index], TableColumns()
    for task, split in sorted(results.scores, key=lambda cell: (cell[0], cell[1] not in SAME, cell[1])):
        by_model = results.scores[task, split]
        means = [fmean(by_model[model][seed].score for seed in results.seeds(model)) for model in models]
        columns.add(task if split in SAME else f"{task}, {split[5:]}", map(point, means), digits=1)
    columns.signs = dict.fromkeys(columns.text, 1)
    metrics = {each.task: registry.metric(each.metric).label for each in results}
    others = "".join(f", {label} for {task}" for task, label in metrics.items() if label != "exact match")
    return columns.table(
        "scores", "Mean score by task", {"mechanism": models}, [SCORES.format(others=others)]
    )


def by_test_set(table: Table, models: Sequence[str]) -> Table:
    """Return the table of scores with a row for each test set, for some models, which fits on a page."""
    text, values = (frame.loc[[*models]].T.rename_axis("test set") for frame in (table.text, table.values))
    return replace(table, text=text, values=values, signs={})


def knowledge_table(results: Results, built_in: Mapping[str, str]) -> Table:
    """Return a table of what the models know without training, and of their sizes."""
    models = [*ranking(results).text.index]
    task = next(iter(results)).task
    parameters = {each.model: each.parameters for each in results if each.task == task}
    columns = TableColumns()
    columns.add(f"parameters, {task}", [point(parameters[model]) for model in models], digits=0)
    rows = {"mechanism": models, "built in": [built_in[model] for model in models]}
    return columns.table("built_in", "Built in", rows, [BUILT_IN])


def draw(table: Table, model: str | None = None) -> Figure:
    """Draw the table of scores as a heat table, in which the row of a model is marked."""
    values = table.values.astype(float)
    figure = Figure(figsize=(1.6 + 0.3 * len(values.columns), 1.4 + 0.2 * len(values)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(values, cmap=COLOUR_MAP, vmin=0, vmax=100, aspect="auto")
    for (row, column), value in np.ndenumerate(values.to_numpy()):
        colour = "white" if value > 60 else "black"
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(
        range(len(values.columns)), values.columns, rotation=40, ha="right", rotation_mode="anchor"
    )
    axes.set_yticks(range(len(values)), values.index)
    for label in axes.get_yticklabels():
        if label.get_text() == model:
            label.set_fontweight("bold")
            axes.axhspan(label.get_position()[1] - 0.5, label.get_position()[1] + 0.5, fill=False, lw=1.5)
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    return figure


def describe(results: Results, model: str, tests: Sequence[Comparison]) -> list[str]:
    """Return sentences: the aggregates of a model, the test over seeds, and where it is better and worse."""
    if model not in results.models:
        raise UserError(
            f"{model} has no seed on all of its test sets: run the command again to train the rest"
        )
    row = ranking(results).text.loc[model]
    tasks, common = len({task for task, _ in results.scores}), results.seeds(model, REFERENCE)
    shown_in = {where: name for where in INPUTS if (name := f"{IMPROVEMENT}, {where}") in row}
    chances = [f"{_with_unit(row[name])} on {INPUTS[where]}" for where, name in shown_in.items()]
    own, others = len(results.seeds(model)), len(results.seeds(REFERENCE))
    counts = f"{tasks} task{'s' * (tasks != 1)}, {own} seed{'s' * (own != 1)} against {others}"
    sentences = [
        f"{model} improves over {REFERENCE} with a probability of {' and '.join(chances)}, in which equal "
        f"scores count half ({counts})."
    ]
    seeds = f"seed{'s' * (len(common) != 1)} {', '.join(map(str, common))}"
    if len(common) >= LEAST_SEEDS:
        found = []
        for where in shown_in:
            differences = seed_differences(results, model, shifted=where == "shifted")
            difference, p = estimate(differences), t_test_p_value(differences)
            found.append(
                f"{difference.mean:+.1f} points [{difference.low:.1f}, {difference.high:.1f}] on "
                f"{INPUTS[where]} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"
            )
        sentences.append(
            f"Over {seeds}, its mean score differs by {' and by '.join(found)}, in paired t tests."
        )
    for word, sign in (("better", 1), ("worse", -1)):
        shown = [each for each in tests if each.significant and (each.difference or 0) * sign > 0]
        shown.sort(key=lambda each: -abs(registry.metric(each.metric).of_100(each.difference or 0)))
        listed = ", ".join(_brief(each) for each in shown)
        sentences.append(
            f"Significantly {word} than {REFERENCE} over inputs of these networks, {seeds}: {listed}."
            if shown
            else f"On no test set is it shown to be {word} than {REFERENCE}."
        )
    return sentences


def _with_unit(text: str) -> str:
    number, bracket, interval = text.partition(" [")
    return f"{number} %{bracket}{interval}"


def _brief(comparison: Comparison) -> str:
    metric = registry.metric(comparison.metric)
    task = comparison.variant.rpartition(" (")[2].rstrip(")")
    where = "" if metric.split in SAME else f", {metric.split.removeprefix('test/')}"
    return f"{task}{where} ({metric.of_100(comparison.difference or 0):+.1f})"


def _aggregate(statistic: Any, *groups: NDArray[np.float64]) -> Estimate:
    """Return a statistic of scores [R, M] with its bootstrap interval, which one seed does not have."""
    value, count = float(statistic(*groups)), min(len(group) for group in groups)
    if count == 1:
        return Estimate(value, None, None, 1)
    low, high = stratified_bootstrap(statistic, *groups)
    return Estimate(value, float(low), float(high), count)
