"""Print the tables and the comparisons of this folder's README from results.csv and selection.csv.

python summary.py [RUNS [SELECTION]]: with the folders of the run directories of all mechanisms, and of the
declared comparison of two of them, write these files first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.report.collect import collect
from attnlab.report.comparison import compare
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
SELECTION = HERE / "selection.csv"
METRICS = ("val/conala_bleu", "val/loss")


def main(runs: str | None = None, selection: str | None = None) -> None:
    """Print Markdown."""
    runpy.run_path(str(HERE.parent / "gain_of_attention.py"))["summarise"](HERE, *([runs] if runs else []))
    if selection is not None:
        study = replace(collect([Path(selection)]), selected_metrics=METRICS)
        SELECTION.write_text(format_results(study))
    study = read_results(SELECTION)
    print("\n### Declared: general against mean, other seeds\n")
    shown = replace(study, selected_metrics=METRICS)
    print(SHORT["scores"](shown))
    tested = replace(study, selected_metrics=METRICS[:1])
    print(SHORT["tests"](compare(tested, reference="mean")), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
