"""The track "tuned" of the benchmark: each mechanism has its own learning rate on each task.

python tuned.py rates RUNS     write rates.csv from runs with every rate, and print the sweeps still to be run
python tuned.py scores RUNS    write tuned.csv and tuned.npz from the runs of these sweeps

summary.py prints the tables. The best rate has the best primary metric on the development set; of equal ones
it is the lowest. Where that is the rate of the track "as is", the scores are those of that track.
"""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd
from scipy.stats import kendalltau

from attnlab.metrics import registry
from attnlab.report.benchmark import scores
from attnlab.report.benchmark.scores import REFERENCE, SAME, Results, Score
from attnlab.report.collect import collect
from attnlab.report.comparison import Comparison, correct
from attnlab.report.statistics import estimate, t_test_p_value
from attnlab.report.study import Study
from attnlab.report.tables import markdown

HERE = Path(__file__).parent
RATES, TUNED = HERE / "rates.csv", HERE / "tuned.csv"
AS_IS = 5e-3
"""Learning rate of the track "as is"."""

Rates = dict[tuple[str, str], float]
"""The rate of each task and mechanism."""


def rate_scores(study: Study) -> pd.DataFrame:
    """Return the development score, on a scale of 0 to 100, of each task, mechanism and rate."""
    rows = []
    for run in study.finished:
        metric = registry.metric(f"val/{run.config['metric']}")
        score = round(metric.of_100(run.scores[metric.logged]), 4)
        rows.append((run.config["task"], run.config["model"], run.config["optimizer"]["lr"], score))
    return pd.DataFrame(sorted(rows), columns=["task", "model", "rate", "score"])


def best_rates(table: pd.DataFrame) -> Rates:
    """Return the best rate of each task and mechanism; all primary metrics are better when higher."""
    best = table.sort_values("rate").groupby(["task", "model"], sort=False)["score"].idxmax()
    return {(row.task, row.model): row.rate for row in table.loc[best].itertuples()}


def overrides(rates: Rates) -> list[str]:
    """Return the settings of one sweep for each task and rate that differs from that of the track "as is"."""
    models: dict[tuple[str, float], list[str]] = {}
    for (task, model), rate in sorted(rates.items()):
        if rate != AS_IS:
            models.setdefault((task, rate), []).append(model)
    return [
        f"task={task} optimizer.lr={rate} model={','.join(names)}" for (task, rate), names in models.items()
    ]


def tuned_results(study: Study) -> Results:
    """Return the scores of runs, each with its rate."""
    runs = ((run, f"optimizer.lr={run.config['optimizer']['lr']}") for run in study.finished)
    return Results(
        each for run, rate in runs for each in scores.from_runs(replace(study, runs=[run]), [rate])
    )


def tracks(rates: Rates, stored: Results, tuned: Results) -> tuple[Results, Results]:
    """Return the scores of the tracks "as is" and "tuned" of the same tasks, mechanisms and seeds.

    Raises:
        KeyError: if a run of the track "tuned" is missing.
    """
    found = {(each.cell, each.model, each.seed): each for each in tuned}
    seeds = {each.seed for each in tuned}
    as_is = [each for each in stored if (each.task, each.model) in rates and each.seed in seeds]

    def own(each: Score) -> Score:
        rate = rates[each.task, each.model]
        chosen = each if rate == AS_IS else found[each.cell, each.model, each.seed]
        assert chosen.overrides == ("" if rate == AS_IS else f"optimizer.lr={rate}")
        return chosen

    return Results(as_is), Results(own(each) for each in as_is)


def means(results: Results, model: str) -> list[float]:
    """Return the mean score of a mechanism over the test sets like the training data, for each seed."""
    return [fmean(row) for row in results.matrix(model, shifted=False)]


def section(rates: Rates, as_is: Results, tuned: Results) -> str:
    """Return the tables of both tracks as Markdown."""
    models = sorted(tuned.models, key=lambda model: -fmean(means(tuned, model)))
    before, after = ({model: means(each, model) for model in models} for each in (as_is, tuned))
    changes = tested({model: _minus(after[model], before[model]) for model in models})
    others = [model for model in models if model != REFERENCE]
    against = tested({model: _minus(after[model], after[REFERENCE]) for model in others})
    rows = {
        model: [
            f"{fmean(before[model]):.1f}",
            f"{fmean(after[model]):.1f}",
            changes[model],
            against.get(model, "–"),
        ]
        for model in models
    }
    tau = kendalltau(*([fmean(each[model]) for model in models] for each in (before, after))).statistic
    counts = pd.Series(rates).value_counts().sort_index()
    chosen = ", ".join(f"{rate:g} {count} times" for rate, count in counts.items())
    tasks = len({task for task, _ in rates})
    note = (
        f"Mean scores over the test sets of {tasks} tasks, {len(after[REFERENCE])} seeds; paired t tests "
        f"over seeds, Holm over each column. Best rates: {chosen}. Kendall's τ of both rankings: {tau:.2f}."
    )
    names = ["as is", "tuned", "change", f"tuned, against {REFERENCE}"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=names).rename_axis("mechanism")
    cells = sorted(tuned.scores, key=lambda cell: (cell[0], cell[1] not in SAME, cell[1]))
    columns = {
        (task if split in SAME else f"{task}, {split[5:]}"): [
            _cell(rates[task, model], *(each.scores[task, split][model] for each in (as_is, tuned)))
            for model in models
        ]
        for task, split in cells
    }
    by_task = pd.DataFrame(columns, index=table.index)
    legend = (
        "Tuned score, and in brackets the change. ↑ and ↓: the rate 0.012 and 0.002 is best, without: 0.005."
    )
    return f"### Tuned rates\n\n{markdown(table, [note])}\n{markdown(by_task, [legend])}"


def tested(differences: dict[str, list[float]]) -> dict[str, str]:
    """Return each mean difference over seeds, with its interval and p by Holm over all of them."""
    tests = []
    for name, values in differences.items():
        tests.append(Comparison("test/exact_match", name, "", "seeds", len(values), p=t_test_p_value(values)))
    texts = {}
    for test in correct(tests):
        interval = estimate(differences[test.variant])
        bounds = f"[{interval.low:.1f}, {interval.high:.1f}]"
        p = test.p_corrected or 0.0
        texts[test.variant] = f"{interval.mean:+.1f} {bounds} ({'< 0.001' if p < 0.001 else f'{p:.3f}'})"
    return texts


def _minus(ours: list[float], theirs: list[float]) -> list[float]:
    return [one - other for one, other in zip(ours, theirs, strict=True)]


def _cell(rate: float, before: dict[int, Score], after: dict[int, Score]) -> str:
    old, new = (fmean(each.score for each in side.values()) for side in (before, after))
    arrow = "" if rate == AS_IS else " ↑" if rate > AS_IS else " ↓"
    return f"{new:.1f} ({new - old:+.1f}){arrow}"


def tables() -> str:
    """Return the tables of the stored results of both tracks."""
    rates = best_rates(pd.read_csv(RATES))
    return section(rates, *tracks(rates, scores.read(scores.STORED), scores.read(TUNED)))


def main(what: str, runs: str) -> None:
    """Write one of the files."""
    study = collect([Path(runs)])
    if what == "rates":
        table = rate_scores(study)
        table.to_csv(RATES, index=False)
        print(*overrides(best_rates(table)), sep="\n")
    else:
        scores.write(tuned_results(study), TUNED)


if __name__ == "__main__":
    main(*sys.argv[1:])
