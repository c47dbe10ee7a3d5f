"""Print the table of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains the runs of `mechanisms` and `conala_attention`,
evaluated with attention_override=all, write results.csv and the figure first.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnlab.nn.attention.interventions import INTERVENTIONS
from attnlab.report import tables
from attnlab.report.collect import collect, read_evaluations
from attnlab.report.comparison import SIGNIFICANCE_LEVEL
from attnlab.report.files import save
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import estimate, holm, t_test_p_value
from attnlab.report.study import RunRecord, Study

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
LEARNED = "as learned"
STUDIES = {
    "mechanisms": ("Sequences reversed, exact match in %", "test/exact_match", 100.0),
    "conala_attention": ("CoNaLa, official BLEU on the development split", "val/conala_bleu", 1.0),
}
"""Title, score and scale of each study."""
SIGNIFICANT = (
    "\\* p < 0.05 of a paired t test over seeds, corrected by Holm's method over all tests of the table; "
    "changes that are equal in all seeds are not tested."
)
Mechanisms = dict[str, list[RunRecord]]


def main(outputs: str | None = None) -> None:
    """Print a table for CoNaLa, and draw both studies side by side."""
    if outputs is not None:
        runs = [run for name in STUDIES for run in evaluated_runs(Path(outputs) / name)]
        RESULTS.write_text(format_results(Study("interventions", runs)))
    study = read_results(RESULTS)
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (name, (title, metric, scale)) in zip(figure.subplots(1, 2), STUDIES.items(), strict=True):
        mechanisms = read_mechanisms(study, f"{name}: ", metric, scale)
        if name != "mechanisms":  # the figure shows these
            print(f"### {title}\n\n{table(mechanisms, metric, scale)}")
        draw(axes, title, mechanisms, metric, scale)
    if outputs is not None:
        save(figure, HERE / "drops.png")
    print(SIGNIFICANT)


def evaluated_runs(folder: Path) -> list[RunRecord]:
    """Read the runs that were evaluated with all interventions, with the scores under each."""
    runs = []
    _, metric, _ = STUDIES[folder.name]
    for run in collect([folder]).finished:
        for _, result in read_evaluations(run.directory):
            if "attention_override=all" in result["overrides"]:
                changed = result["attention_override"].items()
                scores = {score_name(name, metric): each["metrics"][metric] for name, each in changed}
                scores[metric] = result["metrics"][metric]
                variant = f"{folder.name}: {run.variant}"
                runs.append(replace(run, variant=variant, scores=scores, predictions={}))
    return runs


def score_name(intervention: str, metric: str) -> str:
    """Name the score under an intervention, as that of a test set of this name."""
    if intervention == LEARNED:
        return metric
    split, _, name = metric.partition("/")
    return f"{split}/{intervention}/{name}"


def read_mechanisms(study: Study, prefix: str, metric: str, scale: float) -> Mechanisms:
    """Return the runs of each mechanism of a study, by the drop of the score with uniform weights."""
    mechanisms: Mechanisms = {}
    for run in study.runs:
        if run.variant.startswith(prefix):
            mechanisms.setdefault(run.variant.removeprefix(prefix), []).append(run)
    drops = {name: fmean(changes(runs, "uniform", metric, scale)) for name, runs in mechanisms.items()}
    return {name: mechanisms[name] for name in sorted(drops, key=drops.__getitem__)}


def changes(runs: Sequence[RunRecord], intervention: str, metric: str, scale: float) -> list[float]:
    """Return the change of each run's score by an intervention, in points."""
    changed = score_name(intervention, metric)
    return [scale * (run.scores[changed] - run.scores[metric]) for run in runs]


def table(mechanisms: Mechanisms, metric: str, scale: float) -> str:
    """Return a Markdown table of each mechanism's score and its change by each intervention."""
    names = ("mechanism", LEARNED, *INTERVENTIONS)
    significant = significant_changes(mechanisms, metric, scale)
    rows = []
    for name, runs in mechanisms.items():
        learned = estimate([scale * run.scores[metric] for run in runs], (0, 100))
        row = [name, tables.format_estimate(learned, digits=1)]
        for each in INTERVENTIONS:
            change = estimate(changes(runs, each, metric, scale), (-100, 100))
            row.append(tables.format_estimate(change, digits=1) + "*" * ((name, each) in significant))
        rows.append(row)
    return tables.markdown(pd.DataFrame(rows, columns=names).set_index("mechanism"))


def significant_changes(mechanisms: Mechanisms, metric: str, scale: float) -> set[tuple[str, str]]:
    """Return the mechanisms and interventions whose change is significant; all are one family."""
    p_values = {}
    for name, runs in mechanisms.items():
        for each in INTERVENTIONS:
            changed = changes(runs, each, metric, scale)
            if len({*changed}) > 1:
                p_values[name, each] = t_test_p_value(changed)
    corrected = zip(p_values, holm([*p_values.values()]), strict=True)
    return {key for key, p in corrected if p < SIGNIFICANCE_LEVEL}


def draw(axes: Axes, title: str, mechanisms: Mechanisms, metric: str, scale: float) -> None:
    """Draw a heat map of the remaining scores: mechanisms by interventions."""
    columns = (LEARNED, *INTERVENTIONS)
    remaining = [
        [scale * fmean(run.scores[score_name(column, metric)] for run in runs) for column in columns]
        for runs in mechanisms.values()
    ]
    axes.imshow(remaining, aspect="auto", cmap="viridis", vmin=0)
    middle = max(map(max, remaining)) / 2
    for row, values in enumerate(remaining):
        for column, value in enumerate(values):
            colour = "white" if value < middle else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    axes.set_yticks(range(len(mechanisms)), list(mechanisms))
    axes.set_title(title, fontsize=10)


if __name__ == "__main__":
    main(*sys.argv[1:])
