"""Print the tables of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains the runs of each task, write results.csv first.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from scorecard import register_measures

from attnlab.metrics import registry
from attnlab.report import tables
from attnlab.report.collect import collect
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import RunRecord, Study

RESULTS = Path(__file__).with_name("results.csv")
SCORES = {
    "reverse": ("Reversal", "test/exact_match"),
    "copy": ("Copying", "test/exact_match"),
    "sort": ("Sorting", "test/exact_match"),
    "recall": ("Associative recall", "test/same/exact_match"),
    "conala": ("CoNaLa", "val/conala_bleu"),
    "eng_mar": ("English to Marathi", "test/bleu"),
}
"""Title and score of each task."""
MEASURES = (
    ("erasure_top", "integrated_gradients_top", "gradient_top", "erasure_tau", "integrated_gradients_tau"),
    ("comprehensiveness", "comprehensiveness_random", "sufficiency", "sufficiency_random"),
    (
        "adversarial_divergence",
        "uniform_distance",
        "distractor_weight",
        "distractor_drop",
        "alignment_error_rate",
    ),
)
"""Measures of each of the three tables of a task."""


def main(outputs: str | None = None) -> None:
    """Print Markdown."""
    register_measures()
    if outputs is not None:
        runs = [run for task in SCORES for run in read(Path(outputs) / f"faithfulness_{task}", task)]
        RESULTS.write_text(format_results(Study("faithfulness", runs)))
    study = read_results(RESULTS)
    for task, (title, score) in SCORES.items():
        prefix = f"{task}: "
        runs = [
            replace(run, variant=run.variant.removeprefix(prefix))
            for run in study.runs
            if run.variant.startswith(prefix)
        ]
        if not runs:
            continue
        print(f"### {title}\n")
        split = registry.split(score)
        available = {name for run in runs for name in run.scores}
        for number, measures in enumerate(MEASURES):
            names = [score] * (number == 0) + [f"{split}/explanation/{measure}" for measure in measures]
            chosen = replace(
                study, runs=runs, selected_metrics=tuple(name for name in names if name in available)
            )
            print(replace(tables.scores_table(chosen), notes=()).markdown())
    print(tables.INTERVALS)


def read(folder: Path, task: str) -> list[RunRecord]:
    """Read the runs of a task, with the scores of their scorecards without other settings."""
    runs = []
    for run in collect([folder]).runs:
        scores = {SCORES[task][1]: run.scores[SCORES[task][1]]} if run.finished else {}
        for path in sorted((run.directory / "evaluations").glob("*/explanations.json")):
            card = json.loads(path.read_text(encoding="utf-8"))
            if all(override.startswith("explain") for override in card["overrides"]):
                prefix = f"{card['split']}/explanation"
                scores |= {f"{prefix}/{name}": score["value"] for name, score in card["scores"].items()}
        runs.append(replace(run, variant=f"{task}: {run.variant}", scores=scores))
    return runs


if __name__ == "__main__":
    main(*sys.argv[1:])
