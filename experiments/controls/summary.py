"""Print the table of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.analysis.collect import collect
from attnlab.analysis.results_file import format_results, read_results
from attnlab.analysis.study import RunRecord

HERE = Path(__file__).parent
RESULTS = HERE / "results.csv"
MECHANISMS = runpy.run_path(str(HERE.parent / "mechanisms" / "summary.py"))
"""The summary of the mechanisms on the same task, which reads evaluations and prints tables."""
Result, ALIGNED = MECHANISMS["Result"], MECHANISMS["ALIGNED"]
METRICS = {lengths: f"test/{lengths}/exact_match" for lengths in MECHANISMS["RANGES"]}
STEPS = "val/steps_to_99"


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        study = collect([Path(runs)])
        RESULTS.write_text(format_results(replace(study, runs=[with_lengths(run) for run in study.runs])))
    variants: dict[str, list[object]] = {}
    for run in read_results(RESULTS).runs:
        exact = {lengths: run.scores[metric] for lengths, metric in METRICS.items()}
        steps = int(run.scores[STEPS]) if STEPS in run.scores else None
        result = Result(run.seed, run.parameters, exact, run.scores[ALIGNED], steps)
        variants.setdefault(run.variant, []).append(result)
    print(MECHANISMS["table"](variants, {}).markdown())


def with_lengths(run: RunRecord) -> RunRecord:
    """Add exact match in each range of lengths, and the steps to 99 %, to the scores of a run."""
    result = Result.from_run(run)
    added = {METRICS[lengths]: score for lengths, score in result.exact.items()}
    if result.steps is not None:
        added[STEPS] = result.steps
    return replace(run, scores={ALIGNED: result.aligned, **added})


if __name__ == "__main__":
    main(*sys.argv[1:])
