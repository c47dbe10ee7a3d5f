"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories of experiment=eng_deu, evaluated with
search.beam_size=5, write results.csv first.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import compare
from attnlab.analysis.results_file import format_results, read_results
from attnlab.analysis.study import RunRecord
from attnlab.report import tables

RESULTS = Path(__file__).with_name("results.csv")
SCORES = ("bleu", "chrf", "exact_match")
METRICS = (
    *("test/bleu", "test/beam5/bleu", "test/chrf", "test/beam5/chrf"),
    *("test/exact_match", "test/token_accuracy", "test/loss"),
)
TESTED = ("test/bleu", "test/beam5/bleu", "test/loss")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        collected = collect([Path(runs)])
        RESULTS.write_text(
            format_results(replace(collected, runs=[with_beam_search(run) for run in collected.finished]))
        )
    study = read_results(RESULTS)
    available = {name for run in study.finished for name in run.scores}
    study = replace(study, selected_metrics=tuple(name for name in METRICS if name in available))
    print(tables.with_parameters(tables.scores_table(study), study).markdown())
    tested = replace(study, selected_metrics=tuple(name for name in TESTED if name in available))
    print(tables.comparison_list(compare(tested)), end="")


def with_beam_search(run: RunRecord) -> RunRecord:
    """Add the scores of the evaluation with a beam of 5, as those of a test set "beam5"."""
    scores = dict(run.scores)
    for path in sorted((run.directory / "evaluations").glob("*/result.json")):
        result = json.loads(path.read_text())
        if "search.beam_size=5" in result["overrides"]:
            scores |= {f"test/beam5/{name}": result["metrics"][f"test/{name}"] for name in SCORES}
    return replace(run, scores=scores)


if __name__ == "__main__":
    main(*sys.argv[1:])
