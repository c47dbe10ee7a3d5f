"""Print the tables of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the runs of the benchmark, evaluated with
attention_override=all, write results.csv first.
"""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd

from attnlab.metrics import registry
from attnlab.nn.attention.interventions import INTERVENTIONS
from attnlab.report import tables
from attnlab.report.benchmark.scores import REFERENCE, SAME
from attnlab.report.collect import collect, read_evaluations
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import estimate, holm, t_test_p_value
from attnlab.report.study import Study

RESULTS = Path(__file__).with_name("results.csv")
LEARNED = "as learned"
METRICS = ("exact_match", "chrf", "conala_bleu")
"""Primary metrics of the tasks; a run has the score of one of them."""
Scores = dict[tuple[str, str], list[dict[str, float]]]
"""For each task and mechanism and each run, the score with each kind of weights, on a scale of 0 to 100."""


def main(runs: str | None = None) -> None:
    """Print a table of the reference with tests, and one of all mechanisms with uniform weights."""
    if runs is not None:
        RESULTS.write_text(format_results(Study("interventions", evaluated_runs(Path(runs)))))
    scores = read_scores(read_results(RESULTS))
    print(f"### Scores of `{REFERENCE}`, and points of change\n\n{reference_table(scores)}")
    print(f"### Points of change with uniform weights\n\n{mechanisms_table(scores)}")


def evaluated_runs(folder: Path) -> list[RunRecord]:
    """Read the runs that were evaluated with all interventions, with their primary metric under each."""
    runs = []
    for run in collect([folder]).finished:
        for _, result in read_evaluations(run.directory):
            if "attention_override=all" in result["overrides"] and result["split"] in SAME:
                changed = {LEARNED: result, **result["attention_override"]}
                metric = run.config["metric"]
                scores = {
                    score_name(name, metric): each["metrics"][f"{result['split']}/{metric}"]
                    for name, each in changed.items()
                }
                runs.append(replace(run, scores=scores, predictions={}))
    return runs


def score_name(intervention: str, metric: str) -> str:
    """Name the score under an intervention, as that of a test set of this name."""
    return f"test/{metric}" if intervention == LEARNED else f"test/{intervention}/{metric}"


def read_scores(study: Study) -> Scores:
    """Return the scores of the study by task and mechanism."""
    scores: Scores = {}
    for run in study.runs:
        task, _, mechanism = run.variant.partition("-")
        metric = next(name for name in METRICS if score_name(LEARNED, name) in run.scores)
        row = {
            each: registry.metric(score_name(each, metric)).of_100(run.scores[score_name(each, metric)])
            for each in (LEARNED, *INTERVENTIONS)
        }
        scores.setdefault((task, mechanism), []).append(row)
    return scores


def changes(runs: list[dict[str, float]], intervention: str) -> list[float]:
    """Return the change of each run's score by an intervention."""
    return [row[intervention] - row[LEARNED] for row in runs]


def reference_table(scores: Scores) -> str:
    """Return the scores of the reference by task with their changes, and the tests of uniform weights."""
    runs = {task: rows for (task, mechanism), rows in scores.items() if mechanism == REFERENCE}
    p_values = tests(runs)
    rows = []
    for task, each in runs.items():
        cells = [tables.format_estimate(estimate([row[LEARNED] for row in each], (0, 100)), digits=1)]
        for name in INTERVENTIONS:
            if name == "uniform":
                change = estimate(changes(each, name), (-100, 100))
                p = f" ({p_values[task]:.3f})" if task in p_values else ""
                cells.append(tables.format_estimate(change, digits=1) + p)
            else:
                cells.append(f"{fmean(changes(each, name)):.1f}")
        rows.append(cells)
    index = pd.Index(runs, name="task")
    note = f"In brackets: 95 % intervals; of uniform weights p (Holm, {len(p_values)} tests)."
    return tables.markdown(pd.DataFrame(rows, columns=[LEARNED, *INTERVENTIONS], index=index), [note])


def tests(runs: dict[str, list[dict[str, float]]]) -> dict[str, float]:
    """Return p of the change with uniform weights for each task, corrected; the declared family."""
    differences = {task: changes(each, "uniform") for task, each in runs.items()}
    p_values = {task: t_test_p_value(each) for task, each in differences.items() if len({*each}) > 1}
    return dict(zip(p_values, holm([*p_values.values()]), strict=True))


def mechanisms_table(scores: Scores) -> str:
    """Return the mean change with uniform weights by task and mechanism."""
    tasks = [*dict.fromkeys(task for task, _ in scores)]
    mechanisms = sorted({mechanism for _, mechanism in scores})
    rows = [
        [
            f"{fmean(changes(scores[task, name], 'uniform')):.1f}" if (task, name) in scores else ""
            for name in mechanisms
        ]
        for task in tasks
    ]
    return tables.markdown(pd.DataFrame(rows, columns=mechanisms, index=pd.Index(tasks, name="task")))


if __name__ == "__main__":
    main(*sys.argv[1:])
