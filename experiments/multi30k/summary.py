"""Print the table of this folder's README from results.csv.

python summary.py [RUNS]: with the folder of the run directories, write results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from attnlab.report.collect import collect
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
RESULTS = Path(__file__).with_name("results.csv")
METRICS = ("test/bleu", "test/lowercase/bleu", "test/chrf", "val/bleu")


def main(runs: str | None = None) -> None:
    """Print Markdown."""
    if runs is not None:
        collected = collect([Path(runs)])
        finished = [with_lowercase_score(run) for run in collected.finished]
        RESULTS.write_text(format_results(replace(collected, runs=finished)))
    study = replace(read_results(RESULTS), selected_metrics=METRICS)
    print(SHORT["scores"](study, parameters=True))


def with_lowercase_score(run: RunRecord) -> RunRecord:
    """Add BLEU of lower-case text, as the score of a test set "lowercase"."""
    hypotheses, references = zip(
        *((row.hypothesis, row.references) for row in run.predictions["test"]), strict=True
    )
    score = BLEU(lowercase=True).corpus_score(hypotheses, [*zip_longest(*references)]).score
    return replace(run, scores=run.scores | {"test/lowercase/bleu": score})


if __name__ == "__main__":
    main(*sys.argv[1:])
