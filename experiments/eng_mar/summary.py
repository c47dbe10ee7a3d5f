"""Print the tables and the comparisons of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains the studies of `SYSTEMS`, each run evaluated with
search.beam_size=5, write it, samples.md and the heat map first.
"""

import runpy
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.comparison import compare_pair, correct
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results
from attnlab.report.tables import escape_markdown

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
METRICS = (
    *("test/bleu", "test/beam5/bleu", "test/chrf", "test/beam5/chrf"),
    *("test/exact_match", "test/token_accuracy", "test/loss"),
)
SHOWN = ("test/bleu", "test/beam5/bleu", "test/chrf", "test/loss")
TESTED = ("test/bleu", "test/beam5/bleu")
BASELINE, ATTENTION = "published baseline", "published attention"
SYSTEMS = {
    ("eng_mar_baseline", "none"): BASELINE,
    ("eng_mar", "additive"): ATTENTION,
    ("eng_mar_sizes", "additive"): "256 units, attention",
    ("eng_mar_sizes", "none"): "256 units, no attention",
    ("eng_mar_sizes", "none_matched"): "no attention, as many parameters",
}
"""Name of the system of each study and variant."""
COMPARED = (
    (ATTENTION, BASELINE),
    ("256 units, attention", "256 units, no attention"),
    ("256 units, attention", "no attention, as many parameters"),
)
SAMPLES = 10
with_beam_search = runpy.run_path(str(HERE.parent / "eng_deu" / "summary.py"))["with_beam_search"]


def main(folder: str | None = None) -> None:
    """Print Markdown."""
    if folder is not None:
        write_files(Path(folder))
    study = replace(read_results(HERE / "results.csv"), selected_metrics=SHOWN)
    print(SHORT["scores"](study, parameters=True))
    tested = replace(study, selected_metrics=TESTED)
    comparisons = [row for pair in COMPARED for row in compare_pair(tested, *pair)]
    print(SHORT["tests"](correct(comparisons)), end="")


def write_files(outputs: Path) -> None:
    """Write results.csv, the sample translations and the heat map."""
    collected = collect([outputs / name for name in dict.fromkeys(name for name, _ in SYSTEMS)])
    runs = [
        replace(with_beam_search(run), study="eng_mar", variant=SYSTEMS[run.study, attention_of(run)])
        for run in collected.finished
    ]
    study = replace(collected, runs=runs, selected_metrics=METRICS)
    (HERE / "results.csv").write_text(format_results(study))
    first = [study.by_variant()[name][0] for name in (BASELINE, ATTENTION)]
    (HERE / "samples.md").write_text(samples(first) + "\n")
    shutil.copyfile(first[-1].directory / "figures" / "attention-3.png", HERE / "attention.png")


def attention_of(run: RunRecord) -> str:
    """Return the option of the attention, which a variant's name starts with."""
    return run.variant.partition(" · ")[0]


def samples(runs: Sequence[RunRecord]) -> str:
    """Return a Markdown table of the translations of equally spaced test sentences."""
    every = max(1, len(runs[0].predictions["test"]) // SAMPLES)
    lines = [["English", "reference", *(run.variant for run in runs)], ["---"] * (2 + len(runs))]
    sentences = list(zip(*(run.predictions["test"] for run in runs), strict=True))
    for outputs in sentences[::every][:SAMPLES]:
        assert len({output.source for output in outputs}) == 1, "the systems have different test splits"
        lines.append(
            [outputs[0].source, outputs[0].references[0], *(output.hypothesis for output in outputs)]
        )
    return "\n".join(f"| {' | '.join(map(escape_markdown, line))} |" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
