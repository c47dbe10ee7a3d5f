"""Print the tables of this folder's README from the stored results, and draw scores.svg.

python summary.py [RUNS FILE.csv]: first add the runs of a folder to FILE.csv, .npz and .jsonl.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import tuned
from numpy.typing import NDArray
from scipy.stats import kendalltau

import attnlab
from attnlab.cli.benchmark import built_in
from attnlab.data.corpus import Pair
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction, write_predictions
from attnlab.report.aggregates import probability_of_improvement
from attnlab.report.benchmark import rules, scores, tables
from attnlab.report.benchmark.scores import LEAST_SEEDS, REFERENCE, SAME, Results
from attnlab.report.collect import collect
from attnlab.report.files import save
from attnlab.report.record import RunRecord
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
    "training step, as a multiple of that of additive in the same round, median of 7 [lowest, highest]. "
    "MB: of a batch, beside weights and optimizer."
)

FAR_BEHIND = ("monotonic", "mocha", "milk", "none", "none_matched")
"""Mechanisms whose scores are far below the others, so that rankings agree on them."""

Values = NDArray[np.float64]
Rank = Callable[[Values], Values]


def main(runs: str | None = None, file: str = str(scores.STORED)) -> None:
    """Print Markdown and draw the figure."""
    if runs is not None:
        study = collect([Path(runs)])
        before = scores.read(Path(file)) if Path(file).exists() else Results([])
        scores.write(Results([*before, *scores.from_runs(study)]), Path(file))
        if examples := [example(run) for run in reference_runs(study)]:
            write_predictions(Path(file).with_suffix(".jsonl"), examples, weights="pack")
    results = scores.read(Path(file))
    print(f"### All tasks\n\n{tables.ranking(results).markdown()}")
    by_task = tables.scores_table(results)
    print(f"### Mean score by task\n\n{by_task.markdown()}")
    print(f"### Built in, and costs\n\n{costs_table(results)}")
    print(f"### Tests\n\n{tests_table(results)}")
    print(tuned.tables())
    if text := submitted(results, HERE / "submissions"):
        print(text)
    if min(len(results.models), len({task for task, _ in results.scores})) > len(FAR_BEHIND):
        print(f"### Stability of the ranking\n\n{stability_table(results)}")
    if runs is not None:
        chosen = [model for model in by_task.values.index if model in (*MAIN, REFERENCE)]
        save(tables.draw(replace(by_task, values=by_task.values.loc[chosen].T)), HERE / "scores.svg")


def submitted(results: Results, folder: Path) -> str:
    """Return what files that others have submitted say; raise `UserError` if they break a rule."""
    rows, texts = [], []
    for file in sorted(folder.glob("*.csv")):
        theirs = scores.read(file)
        if broken := rules.violations(theirs, results):
            raise UserError(f"{file}: {'; '.join(broken)}")
        joined, (model,) = scores.join(theirs, results), theirs.models
        knows = next(each.built_in for each in theirs)
        rows.append(tables.ranking(joined).text.loc[[model]].assign(**{"built in": knows}))
        texts.append(f"- {' '.join(tables.describe(joined, model, tables.compare(joined, model)))}\n")
    return "".join(["### Submitted\n\n", markdown(pd.concat(rows), []), "\n", *texts]) if rows else ""


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
    sizes = {each.model: each.parameters for each in results if each.task == "reverse"}
    knows, costs = built_in(), pd.read_csv(HERE / "costs.csv").set_index(["model", "lengths"])
    rows = {
        model: [
            knows[model],
            f"{sizes[model]:,}" if model in sizes else "–",
            *(
                "{times_additive:.2f} [{lowest:.2f}, {highest:.2f}]".format(**costs.loc[model, lengths])
                for lengths in ("task", "50")
            ),
            f"{costs.peak_mb[model, '50']:.0f}",
        ]
        for model in tables.ranking(results).text.index
    }
    names = ["built in", "parameters, reverse", "time, reverse", "time, 50 tokens", "MB, 50 tokens"]
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
    differences = {model: tables.seed_differences(results, model, shifted=shifted) for model in models}
    texts = {model: f"{fmean(values):+.1f}" for model, values in differences.items()}
    enough = {model: values for model, values in differences.items() if len(values) >= LEAST_SEEDS}
    for main in (True, False):
        family = {model: values for model, values in enough.items() if (model in MAIN) == main}
        texts |= tuned.tested(family)
    return texts


def stability(values: Values, rank: Rank) -> tuple[list[float], list[float]]:
    """Return Kendall's τ between rankings by two halves of the tasks, and by two halves of the seeds.

    Args:
        values: scores [K, R, M] of K models with R seeds on M tasks.
        rank: returns the score of each model by which they are ranked, [K].
    """
    _, seeds, tasks = values.shape
    by_tasks = [
        agreement(rank(values[:, :, half]), rank(np.delete(values, half, axis=2)))
        for half in combinations(range(tasks), tasks // 2)
    ]
    by_seeds = [
        agreement(rank(values[:, half]), rank(np.delete(values, half, axis=1)))
        for half in combinations(range(seeds), seeds // 2)
    ]
    return by_tasks, by_seeds


def agreement(one: Values, other: Values) -> float:
    """Return Kendall's τ of two rankings."""
    return float(kendalltau(one, other).statistic)


def stability_table(results: Results) -> str:
    """Return the stability of all models, over the seeds that all have, and without those far behind."""
    models = results.models
    seeds = results.seeds(*models)
    shared = Results(each for each in results if each.seed in seeds)
    rows = []
    for chosen in (models, [each for each in models if each not in FAR_BEHIND]):
        values = np.stack([shared.matrix(model, shifted=False) for model in chosen])
        place = chosen.index(REFERENCE)
        ranks: dict[str, Rank] = {
            "improvement": lambda part, place=place: probability_of_improvement(part, part[place]),
            "mean score": lambda part: part.mean(axis=(1, 2)),
        }
        for name, rank in ranks.items():
            halves = stability(values, rank)
            texts = (f"{fmean(each):.2f} ({min(each):.2f} to {max(each):.2f})" for each in halves)
            rows.append([name, str(len(chosen)), *texts])
    columns = ["rank by", "mechanisms", "two halves of the tasks", f"two halves of the {len(seeds)} seeds"]
    note = (
        "Kendall's τ between rankings on inputs like those of training; mean (lowest to highest) over all "
        f"halves. The second two rows are without {', '.join(FAR_BEHIND)}."
    )
    return markdown(pd.DataFrame(rows, columns=columns).set_index("rank by"), [note])


if __name__ == "__main__":
    main(*sys.argv[1:])
