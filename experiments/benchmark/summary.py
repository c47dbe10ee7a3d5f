"""Print the tables of this folder's README from the stored results, and draw scores.svg.

python summary.py [RUNS FILE.csv]: first add the runs of a folder to FILE.csv, .npz and .jsonl.
"""

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pandas as pd
from scipy.stats import kendalltau

import attnlab
from attnlab.cli.benchmark import built_in
from attnlab.data.corpus import Pair
from attnlab.files.predictions import Prediction, write_predictions
from attnlab.report.benchmark import scores, tables
from attnlab.report.benchmark.scores import LEAST_SEEDS, REFERENCE, SAME, Results
from attnlab.report.collect import collect
from attnlab.report.comparison import Comparison, correct
from attnlab.report.files import save
from attnlab.report.record import RunRecord
from attnlab.report.statistics import estimate, t_test_p_value
from attnlab.report.study import Study
from attnlab.report.tables import markdown

HERE = Path(__file__).parent
MAIN = (
    *("dot", "general", "location_sensitive", "multihead", "monotonic"),
    *("local_p", "coverage_tu", "shift", "none", "none_matched"),
)
"""Mechanisms of the main tests, which are a family of their own."""
COSTS = (
    "Built in: what a mechanism knows of alignments without training, as its option says. Time: of a "
    "training step, as a multiple of that of additive in the same round, median of 7. MB: of a batch, beside "
    "weights and optimizer. costs.csv has the lowest and highest times."
)


def main(runs: str | None = None, file: str = str(scores.STORED)) -> None:
    """Print Markdown and draw the figure."""
    if runs is not None:
        study = collect([Path(runs)])
        before = scores.read(Path(file)) if Path(file).exists() else []
        scores.write(Results([*before, *scores.from_runs(study)]), Path(file))
        if examples := [example(run) for run in reference_runs(study)]:
            write_predictions(Path(file).with_suffix(".jsonl"), examples, weights="pack")
    results = scores.read(Path(file)).complete()
    print(f"### All tasks\n\n{tables.ranking(results).markdown()}")
    by_task = tables.scores_table(results)
    print(f"### Mean score by task\n\n{by_task.markdown()}")
    print(f"### Built in, and costs\n\n{costs_table(results)}")
    print(f"### Tests\n\n{tests_table(results)}")
    if (stability := split_half(results)) is not None:
        print(f"Kendall's τ between the rankings of two halves of the tasks, mean: {stability:.2f}.\n")
    if runs is not None:
        chosen = [model for model in by_task.values.index if model in (*MAIN, REFERENCE)]
        save(tables.draw(replace(by_task, values=by_task.values.loc[chosen].T)), HERE / "scores.svg")


def reference_runs(study: Study) -> list[RunRecord]:
    """Return the run of the reference with seed 0 for each task."""
    return [run for run in study.finished if (run.config["model"], run.seed) == (REFERENCE, 0)]


def example(run: RunRecord) -> Prediction:
    """Translate the first test input of a run again, with its attention weights."""
    first = next(outputs for split, outputs in run.predictions.items() if split in SAME)[0]
    model = attnlab.load(run.directory)
    ((found,),) = model.decode([Pair(first.source, "", reference="")], model.translator())
    return replace(found, references=first.references)


def costs_table(results: Results) -> str:
    """Return what the models know without training, and the costs of their training steps."""
    sizes = {each.model: each.parameters for each in results}
    knows, costs = built_in(), pd.read_csv(HERE / "costs.csv").set_index(["model", "lengths"])
    rows = {
        model: [
            knows[model],
            f"{sizes[model]:,}",
            *(f"{costs.times_additive[model, lengths]:.2f}" for lengths in ("task", "50")),
            f"{costs.peak_mb[model, '50']:.0f}",
        ]
        for model in tables.ranking(results).text.index
    }
    names = ["built in", "parameters", "time, reverse", "time, 50 tokens", "MB, 50 tokens"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=names).rename_axis("mechanism")
    return markdown(table.set_index("built in", append=True), [COSTS])


def tests_table(results: Results) -> str:
    """Return a table with the tests of each model against the reference: over seeds, and over inputs."""
    models = [model for model in tables.ranking(results).text.index if model != REFERENCE]
    columns = {
        f"over seeds, {name}": over_seeds(results, models, shifted=name != "same")
        for name in ("same", "shifted")
    }
    rows = []
    for model in models:
        tests = [each for each in tables.compare(results, model) if each.significant]
        better = sum((each.difference or 0) > 0 for each in tests)
        rows.append([*(column[model] for column in columns.values()), str(better), str(len(tests) - better)])
    names = [*columns, "better over inputs", "worse over inputs"]
    note = (
        f"Against {REFERENCE}. Over seeds: difference of the mean score, paired t test over the seeds, Holm "
        f"over {', '.join(MAIN)}, and over the others; no test with fewer than {LEAST_SEEDS} seeds. Over "
        "inputs: test sets with a significant difference, Holm within each mechanism."
    )
    return markdown(pd.DataFrame(rows, columns=names, index=pd.Index(models, name="mechanism")), [note])


def over_seeds(results: Results, models: list[str], *, shifted: bool) -> dict[str, str]:
    """Return the difference of the mean score of each model from the reference, with p."""
    texts, tests = {}, []
    for model in models:
        differences = tables.seed_differences(results, model, shifted=shifted)
        texts[model] = f"{fmean(differences):+.1f}"
        if (seeds := len(differences)) >= LEAST_SEEDS:
            interval = estimate(differences)
            texts[model] += f" [{interval.low:.1f}, {interval.high:.1f}]"
            p = t_test_p_value(differences)
            tests.append(Comparison("test/exact_match", model, REFERENCE, "seeds", seeds, p=p))
    families = ([test for test in tests if (test.variant in MAIN) == main] for main in (True, False))
    for test in (test for family in families for test in correct(family)):
        texts[test.variant] += f" ({test.p_corrected:.3f})"
    return texts


def split_half(results: Results) -> float | None:
    """Return the mean of Kendall's τ between the rankings by both halves of the tasks, over all halves."""
    tasks = sorted({task for task, _ in results.scores})
    models = results.models
    if len(tasks) < 4 or len(models) < 3:
        return None
    means = {
        (model, task): fmean(
            each.score
            for (name, split), by in results.scores.items()
            if name == task and split in SAME
            for each in by[model].values()
        )
        for model in models
        for task in tasks
    }
    taus = []
    for half in combinations(tasks, len(tasks) // 2):
        other = [task for task in tasks if task not in half]
        ranks = ([fmean(means[model, task] for task in part) for model in models] for part in (half, other))
        taus.append(kendalltau(*ranks).statistic)
    return fmean(taus)


if __name__ == "__main__":
    main(*sys.argv[1:])
