"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains eng_deu, each run evaluated with
search.beam_size=5, write results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.files.run_directory import predictions_file
from attnlab.report.collect import collect, load_predictions, read_evaluations
from attnlab.report.comparison import compare_pair, correct
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
RESULTS = Path(__file__).with_name("results.csv")
SCORES = ("bleu", "chrf", "exact_match")
METRICS = ("test/bleu", "test/beam5/bleu", "test/chrf", "test/loss")
TESTED = ("test/bleu", "test/beam5/bleu", "test/loss")
ATTENTION, BASELINES = "additive", ("none", "none_matched")


def main(outputs: str | None = None) -> None:
    """Print Markdown."""
    if outputs is not None:
        collected = collect([Path(outputs) / "eng_deu"])
        runs = [with_beam_search(run) for run in collected.finished]
        RESULTS.write_text(format_results(replace(collected, runs=runs)))
    study = read_results(RESULTS)
    available = {name for run in study.finished for name in run.scores}
    study = replace(study, selected_metrics=tuple(name for name in METRICS if name in available))
    print(SHORT["scores"](study, parameters=True))
    tested = replace(study, selected_metrics=TESTED)
    comparisons = [row for other in BASELINES for row in compare_pair(tested, ATTENTION, other)]
    print(SHORT["tests"](correct(comparisons)), end="")


def with_beam_search(run: RunRecord) -> RunRecord:
    """Add the scores of the evaluation with a beam of 5, as those of a test set "beam5"."""
    scores, predictions = dict(run.scores), dict(run.predictions)
    for folder, result in read_evaluations(run.directory):
        if "search.beam_size=5" in result["overrides"]:
            scores |= {f"test/beam5/{name}": result["metrics"][f"test/{name}"] for name in SCORES}
            predictions["test/beam5"] = load_predictions(folder / predictions_file("test"))
    return replace(run, scores=scores, predictions=predictions)


if __name__ == "__main__":
    main(*sys.argv[1:])
