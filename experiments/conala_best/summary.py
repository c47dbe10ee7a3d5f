"""Print the tables and the comparisons of this folder's README from results.csv and cross-validation.csv.

python summary.py [RUNS GENERATED DISTILLED]: write results.csv first, from the folders of the runs of the
recipe, evaluated in the ways of `WAYS` and `ENSEMBLES`, of the runs with generated intents, and of those that
learned from the ensemble. reranker.py writes reranker.csv, and cross_validation.py the other file.
"""

import csv
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnlab.files.run_directory import predictions_file
from attnlab.report import tables
from attnlab.report.collect import collect, load_predictions, read_evaluations
from attnlab.report.comparison import compare
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import Study

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
RESULTS = Path(__file__).with_name("results.csv")
RERANKER = Path(__file__).with_name("reranker.csv")
CROSS_VALIDATION = Path(__file__).with_name("cross-validation.csv")
WAYS = {
    "greedy": ("search.beam_size=1", "reranking=none"),
    "beam of 5": ("reranking=none",),
    "beam of 5, valid Python first": ("reranking=python",),
    "beam of 5, grammar": ("reranking=none", "grammar=python"),
    "beam of 5, the recipe with grammar": ("reranking=conala", "grammar=python"),
    "beam of 20, the recipe": ("reranking=conala", "search.beam_size=20"),
    "beam of 20, the recipe with grammar": (
        "reranking=conala",
        "search.beam_size=20",
        "grammar=python",
    ),
    "beam of 20, minimum Bayes risk": ("reranking=mbr", "search.beam_size=20"),
}
"""Settings of each way of decoding that `attnlab evaluate` was given."""
RECIPE = "beam of 5, the recipe"
"""The way of decoding of the trained runs themselves."""
LARGE_BEAMS = ("beam of 20, the recipe", "beam of 20, the recipe with grammar")
ENSEMBLES = {RECIPE: ("reranking=conala",)} | {name: WAYS[name] for name in LARGE_BEAMS}
"""Settings of each way of decoding with all networks, evaluated with that of seed 0 as the first one."""
ENSEMBLE = "ensemble of all seeds, "
LIMIT = "beam of 20, most similar to the reference"
"""Choice of reranker.py that needs the reference, and is not compared."""
TRAININGS = ("", ", trained with generated intents", ", distilled from the ensemble")
TEST = "test/held_out"
HELD_OUT = f"{TEST}/conala_bleu"
METRICS = ("val/conala_bleu", HELD_OUT, f"{TEST}/conala_exact_match", f"{TEST}/parses")
SHOWN = (RECIPE, "greedy", LIMIT, f"{ENSEMBLE}{RECIPE}", f"{ENSEMBLE}{LARGE_BEAMS[1]}")
"""Ways of decoding whose scores are printed; the others have a difference, or a row in the CSV files."""


def main(*folders: str) -> None:
    """Print Markdown."""
    if folders:
        ways = [
            replace(way, variant=way.variant + suffix)
            for folder, suffix in zip(folders, TRAININGS, strict=True)
            for run in collect([Path(folder)]).finished
            for way in ways_of_decoding(run)
        ]
        RESULTS.write_text(format_results(Study("conala_best", ways)))
    runs_of_all = (*read_results(RESULTS).runs, *read_results(RERANKER).runs)
    study = Study("conala_best", [*runs_of_all], selected_metrics=METRICS)
    print("### Nested cross-validation over the training file\n")
    print(tables.markdown(cross_validation()))
    print("### Held-out examples\n")
    shown = replace(study, runs=[run for run in study.runs if run.variant in SHOWN])
    print(SHORT["scores"](shown))
    single = [run for run in study.runs if not run.variant.startswith(ENSEMBLE) and run.variant != LIMIT]
    tested = replace(study, runs=single, selected_metrics=(HELD_OUT,))
    print(SHORT["tests"](compare(tested, reference=RECIPE)), end="")


def cross_validation() -> pd.DataFrame:
    """Return the scores of all folds together."""
    with CROSS_VALIDATION.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["fold"] == "all"]
    columns = {
        "way of decoding": [row["way"] for row in rows],
        "examples": [row["sentences"] for row in rows],
        "CoNaLa BLEU over sentences": [
            f"{float(row['bleu']):.1f} [{float(row['low']):.1f}, {float(row['high']):.1f}]" for row in rows
        ],
        "CoNaLa exact match [%]": [f"{100 * float(row['exact_match']):.1f}" for row in rows],
        "length of outputs / references": [f"{float(row['length_ratio']):.2f}" for row in rows],
    }
    return pd.DataFrame(columns).set_index("way of decoding")


def ways_of_decoding(run: RunRecord) -> list[RunRecord]:
    """Return a record for each way in which a run was decoded, with its scores on both splits."""
    ways = [replace(run, variant=RECIPE)]
    results = dict(read_evaluations(run.directory))
    ensembles = {f"{ENSEMBLE}{name}": overrides for name, overrides in ENSEMBLES.items()}
    for name, overrides in (WAYS | ensembles).items():
        chosen = [
            folder
            for folder, result in results.items()
            if set(result["overrides"]) == set(overrides)
            and bool(result["ensemble_with"]) == (name in ensembles)
        ]
        scores = {metric: value for each in chosen for metric, value in results[each]["metrics"].items()}
        if scores:
            outputs = [load_predictions(each / predictions_file(TEST)) for each in chosen]
            ways.append(replace(run, variant=name, scores=scores, predictions={TEST: max(outputs, key=len)}))
    return ways


if __name__ == "__main__":
    main(*sys.argv[1:])
