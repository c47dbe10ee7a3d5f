"""Print the table of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains the runs of `mechanisms` and `conala_attention`,
evaluated with attention_override=all, write results.csv first.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd

from attnlab.nn.attention.interventions import INTERVENTIONS
from attnlab.report import tables
from attnlab.report.collect import collect, read_evaluations
from attnlab.report.comparison import SIGNIFICANCE_LEVEL
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import estimate, holm, t_test_p_value
from attnlab.report.study import RunRecord, Study

RESULTS = Path(__file__).with_name("results.csv")
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
    """Print a table for CoNaLa; the figure shows the other study."""
    if outputs is not None:
        runs = [run for name in STUDIES for run in evaluated_runs(Path(outputs) / name)]
        RESULTS.write_text(format_results(Study("interventions", runs)))
    study = read_results(RESULTS)
    title, metric, scale = STUDIES["conala_attention"]
    mechanisms = read_mechanisms(study, "conala_attention: ", metric, scale)
    print(f"### {title}\n\n{table(mechanisms, metric, scale)}")
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


if __name__ == "__main__":
    main(*sys.argv[1:])
