"""Print the table of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains the runs of each task, write results.csv first.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd
from scorecard import register_measures

from attnlab.metrics import registry
from attnlab.report import tables
from attnlab.report.collect import collect
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import Study

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
MEASURES = {
    "erasure_top": "same top token as erasure [%]",
    "integrated_gradients_top": "as integrated gradients [%]",
    "comprehensiveness": "comprehensiveness",
    "comprehensiveness_random": "of random tokens",
    "uniform_distance": "change by uniform weights",
    "alignment_error_rate": "alignment error rate [%]",
}
"""Measures that are printed, and their headings; results.csv has all of them."""


def main(outputs: str | None = None) -> None:
    """Print Markdown."""
    register_measures()
    if outputs is not None:
        runs = [run for task in SCORES for run in read(Path(outputs) / f"faithfulness_{task}", task)]
        RESULTS.write_text(format_results(Study("faithfulness", runs)))
    cells = []
    for task, (title, score) in SCORES.items():
        variants: dict[str, list[RunRecord]] = {}
        for run in read_results(RESULTS).runs:
            name, _, variant = run.variant.partition(": ")
            if name == task:
                variants.setdefault(variant, []).append(run)
        split = registry.split(score)
        metrics = (score, *(f"{split}/explanation/{measure}" for measure in MEASURES))
        for variant, runs in variants.items():
            cells.append([title, variant, *(mean(runs, metric) for metric in metrics)])
    columns = ["task", "attention", "score", *MEASURES.values()]
    print(tables.markdown(pd.DataFrame(cells, columns=columns).set_index(columns[:2])))


def mean(runs: list[RunRecord], metric: str) -> str:
    """Return the mean of a score over the runs that have it."""
    values = [run.scores[metric] for run in runs if metric in run.scores]
    return registry.metric(metric).number(fmean(values)) if values else "–"


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
