"""Comparison of attention mechanisms with the model without attention, shared by summary.py files."""

import runpy
from dataclasses import replace
from pathlib import Path

from attnlab.files.run_directory import predictions_file
from attnlab.report.collect import collect, load_predictions, read_evaluations
from attnlab.report.comparison import compare, correct
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import Estimate, estimate
from attnlab.report.study import Study
from attnlab.report.tables import escape_markdown, format_estimate

METRICS = (
    *("val/loss", "val/conala_bleu", "attention/effective_positions"),
    *("test/conala_bleu", "test/conala_exact_match"),
)
TESTED = ("val/loss", "val/conala_bleu", "test/conala_bleu")
BASELINE = "none"
REFERENCES = (BASELINE, "none_matched", "mean")
"""The variants that all others are compared with, if they have runs; the first one is shown if alone."""
SHORT = runpy.run_path(str(Path(__file__).with_name("short_tables.py")))


def summarise(folder: Path, runs: str | None = None) -> None:
    """Print Markdown from results.csv in a folder; with run directories, write it first."""
    results = folder / "results.csv"
    if runs is not None:
        study = collect([Path(runs)])
        study = replace(study, runs=[with_official_test(run) for run in study.runs])
        results.write_text(format_results(study))
    study = select(read_results(results), METRICS)
    print(SHORT["scores"](study, parameters=True))
    gains = [
        f"{name} {describe_gain(relative_gain(study, name))}" for name in study.variants if name != BASELINE
    ]
    print(escape_markdown(f"Reduction of the validation loss of {BASELINE} in %: {', '.join(gains)}."))
    tested = select(study, TESTED)
    references = [name for name in REFERENCES if name in study.variants]
    comparisons = [row for name in references for row in compare(tested, reference=name)]
    distinct = {(row.metric, frozenset((row.variant, row.reference))): row for row in reversed(comparisons)}
    corrected = correct([*reversed(distinct.values())])
    shown = [row for row in corrected if row.reference != BASELINE] or corrected
    print()
    print(SHORT["tests"](shown), end="")


def with_official_test(run: RunRecord) -> RunRecord:
    """Add the scores and the outputs of an evaluation with data.test, if there is one."""
    for folder, result in read_evaluations(run.directory):
        if any(override.startswith("data.test=") for override in result["overrides"]):
            scores = {name: value for name, value in result["metrics"].items() if name.startswith("test/")}
            outputs = load_predictions(folder / predictions_file("test"))
            return replace(run, scores=run.scores | scores, predictions=run.predictions | {"test": outputs})
    return run


def select(study: Study, metrics: tuple[str, ...]) -> Study:
    """Select the metrics that the runs have."""
    available = {name for run in study.finished for name in run.scores}
    return replace(study, selected_metrics=tuple(name for name in metrics if name in available))


def relative_gain(study: Study, variant: str) -> Estimate:
    """Return the reduction of the validation loss in % of the baseline's, over the shared seeds."""
    groups = study.by_variant()
    ours, theirs = (
        {run.seed: run.scores["val/loss"] for run in groups[name]} for name in (variant, BASELINE)
    )
    shared = sorted(ours.keys() & theirs.keys())
    return estimate([100 * (1 - ours[seed] / theirs[seed]) for seed in shared])


def describe_gain(gain: Estimate) -> str:
    """Format a reduction with its interval, such as "4.54 [2.52, 6.56]"; negative if the loss is higher."""
    return format_estimate(gain, digits=2)
