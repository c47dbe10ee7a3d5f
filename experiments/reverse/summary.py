"""Print the table and the comparisons of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains reverse_published and copy_published, write
results.csv and the figures first.
"""

import runpy
import shutil
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

from attnlab import load
from attnlab.report import figures, study_tables, tables
from attnlab.report.collect import collect
from attnlab.report.comparison import compare
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.statistics import estimate
from attnlab.report.study import Study
from attnlab.report.tables import Table

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
LOSS = "train/loss_epoch"
FIRST, LAST, EXAMPLE_CORRECT = "train/loss_first_epoch", "train/loss_last_epoch", "test/example_correct"
METRICS = ("test/exact_match", "test/loss", "test/attention/alignment_accuracy")
SHOWN = ("test/exact_match", "test/attention/alignment_accuracy")
PUBLISHED = "as published"
WITH_BRIDGE = "started from the encoder"
NO_ATTENTION = "the same without attention"
COPYING = "copying instead, as published"
EXAMPLE = "7 9 25 26 23 23"


def main(outputs: str | None = None) -> None:
    """Print Markdown."""
    if outputs is not None:
        write_files(Path(outputs))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=SHOWN)
    print(replace(table(study), notes=()).markdown())
    tested = replace(reversing(study), selected_metrics=METRICS)
    print(SHORT["tests"](compare(tested, reference=NO_ATTENTION)), end="")


def write_files(outputs: Path) -> None:
    """Write results.csv and the figures."""
    study = collect([outputs / "reverse_published", outputs / "copy_published"])
    runs = [with_example(replace(run, variant=variant_name(run))) for run in study.runs]
    study = replace(study, runs=runs, selected_metrics=METRICS)
    (HERE / "results.csv").write_text(format_results(study))
    drawn = reversing(study)
    styles = figures.styles_of(drawn)
    curves = [each for each in figures.draw_figures(drawn, styles) if each.name == "train-loss_epoch"]
    figures.write_figures(curves, styles, HERE)
    first = study.by_variant()[PUBLISHED][0]
    shutil.copyfile(first.directory / "figures" / "attention-1.png", HERE / "attention-published.png")


def reversing(study: Study) -> Study:
    """Leave out the runs that copy."""
    return replace(study, runs=[run for run in study.runs if run.variant != COPYING])


def with_example(run: RunRecord) -> RunRecord:
    """Add the training losses of the first and last epoch, and whether the example is correct, as scores."""
    losses = {name: run.series[LOSS][epoch][1] for name, epoch in ((FIRST, 0), (LAST, -1))}
    return replace(run, scores=run.scores | losses | {EXAMPLE_CORRECT: float(solves_example(run))})


def variant_name(run: RunRecord) -> str:
    """Name the variant by its task, attention and bridge."""
    if run.config["data"]["task"] == "copy":
        return COPYING
    if run.config["attention"]["_target_"].endswith(".NoAttention"):
        return NO_ATTENTION
    return PUBLISHED if run.config["bridge"]["_target_"].endswith(".ZeroBridge") else WITH_BRIDGE


def table(study: Study) -> Table:
    """Extend the table of scores by the training loss and the example of the published system."""
    scores = study_tables.scores_table(study)
    groups, text = study.by_variant().values(), scores.text.copy()
    for name, heading in ((FIRST, "training loss, first epoch"), (LAST, "last epoch")):
        losses = (estimate([run.scores[name] for run in runs], (0, inf)) for runs in groups)
        text[heading] = [tables.format_estimate(loss, digits=3) for loss in losses]
    text[f"[{EXAMPLE.replace(' ', ', ')}] correct"] = [
        f"{round(sum(run.scores[EXAMPLE_CORRECT] for run in runs))} of {len(runs)}" for runs in groups
    ]
    extended: Table = SHORT["with_parameters"](replace(scores, text=text), study)
    return extended


def solves_example(run: RunRecord) -> bool:
    """Return whether the run reverses, or copies, the example of the published system."""
    (output,) = load(run.directory).translate(EXAMPLE)
    return output.hypothesis.split() == EXAMPLE.split()[:: 1 if run.variant == COPYING else -1]


if __name__ == "__main__":
    main(*sys.argv[1:])
