"""Print the tables and the comparisons of this folder's README from results.csv.

python summary.py [OUTPUTS]: with the folder that contains learning_rates and learning_rates_chosen, write
results.csv first.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnlab.report import tables
from attnlab.report.collect import collect
from attnlab.report.comparison import compare
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import Study

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
RATES = ("0.0005", "0.001", "0.002", "0.004")
VALIDATION, TEST = "val/exact_match", "test/exact_match"
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
    print(validation_table(single))
    print(SHORT["scores"](repeated, parameters=True))
    tested = replace(repeated, selected_metrics=(TEST,))
    print(SHORT["tests"](compare(tested, reference="additive")), end="")


def validation_table(study: Study) -> str:
    """Return Markdown with the validation exact match at each rate, and the rate that is chosen."""
    scores = {run.variant: f"{100 * run.scores[VALIDATION]:.1f}" for run in study.finished}
    mechanisms = dict.fromkeys(run.variant.partition("-")[0] for run in study.finished)
    index = pd.Index(mechanisms, name="attention")
    columns = {
        f"{rate} [%]": [scores.get(f"{mechanism}-{rate}", tables.MISSING) for mechanism in mechanisms]
        for rate in RATES
    }
    columns["chosen"] = [chosen_rate(study, mechanism) for mechanism in mechanisms]
    return tables.markdown(pd.DataFrame(columns, index=index))


if __name__ == "__main__":
    main(*sys.argv[1:])
