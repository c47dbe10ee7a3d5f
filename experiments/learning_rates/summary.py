"""Print the tables and the comparisons of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains learning_rates and learning_rates_chosen, write
results.csv first.
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
TEST = "test/exact_match"
METRICS = (TEST, "test/attention/alignment_accuracy")
chosen_rate = runpy.run_path(str(HERE / "chosen_rate.py"))["chosen_rate"]


def main(outputs: str | None = None) -> None:
    """Print Markdown."""
    if outputs is not None:
        study = collect([Path(outputs) / name for name in ("learning_rates", "learning_rates_chosen")])
        (HERE / "results.csv").write_text(format_results(study))
    study = read_results(HERE / "results.csv")
    single = replace(study, runs=[run for run in study.runs if "-" in run.variant])
    repeated = replace(
        study, runs=[run for run in study.runs if "-" not in run.variant], selected_metrics=METRICS
    )
    rates = (f"`{name}` {chosen_rate(single, name)}" for name in repeated.variants)
    print(f"Chosen learning rates: {', '.join(rates)}.\n")
    comparisons = compare(replace(repeated, selected_metrics=(TEST,)), reference="additive")
    print(SHORT["scores"](repeated, comparisons=comparisons, than="additive"))


if __name__ == "__main__":
    main(*sys.argv[1:])
