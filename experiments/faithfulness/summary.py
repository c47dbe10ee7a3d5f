"""Print the table of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the runs of the benchmark, evaluated with explain=all,
explain=adversarial and explain=distractors, write results.csv first.
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
from attnlab.report.benchmark.scores import SAME
from attnlab.report.collect import collect
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import Study

RESULTS = Path(__file__).with_name("results.csv")
METRICS = ("exact_match", "chrf", "conala_bleu")
"""Primary metrics of the tasks; a run has the score of one of them."""
MEASURES = {
    "erasure_top": "same top token as erasure [%]",
    "gradient_top": "as gradients [%]",
    "comprehensiveness": "comprehensiveness",
    "comprehensiveness_random": "of random tokens",
    "uniform_distance": "change by uniform weights",
    "adversarial_divergence": "adversarial divergence",
    "alignment_error_rate": "alignment error rate [%]",
}
"""Measures that are printed, and their headings; results.csv has all of them."""


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    register_measures()
    if runs is not None:
        RESULTS.write_text(format_results(Study("faithfulness", read(Path(runs)))))
    variants: dict[str, list[RunRecord]] = {}
    for run in read_results(RESULTS).runs:
        variants.setdefault(run.variant, []).append(run)
    cells = []
    for variant, each in variants.items():
        metric = next(name for name in METRICS if f"test/{name}" in each[0].scores)
        columns = (metric, *(f"explanation/{measure}" for measure in MEASURES))
        cells.append([*variant.split("-"), *(mean(each, f"test/{column}") for column in columns)])
    columns = ["task", "attention", "score", *MEASURES.values()]
    print(tables.markdown(pd.DataFrame(cells, columns=columns).set_index(columns[:2])))


def mean(runs: list[RunRecord], metric: str) -> str:
    """Return the mean of a score over the runs that have it."""
    values = [run.scores[metric] for run in runs if metric in run.scores]
    return registry.metric(metric).number(fmean(values)) if values else "–"


def read(folder: Path) -> list[RunRecord]:
    """Read the runs with scorecards, and the primary metric, on the test set of the training distribution."""
    runs = []
    for run in collect([folder]).finished:
        scores = {}
        for path in sorted((run.directory / "evaluations").glob("*/explanations.json")):
            card = json.loads(path.read_text(encoding="utf-8"))
            of_run = all(override.startswith("explain") for override in card["overrides"])
            if of_run and card["split"] in SAME:
                score = f"test/{run.config['metric']}"
                scores[score] = run.scores[f"{card['split']}/{run.config['metric']}"]
                scores |= {f"test/explanation/{name}": part["value"] for name, part in card["scores"].items()}
        if scores:
            runs.append(replace(run, scores=scores, predictions={}))
    return runs


if __name__ == "__main__":
    main(*sys.argv[1:])
