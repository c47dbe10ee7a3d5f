"""Print the tables and the comparisons of this folder's README from results.csv, longer.csv and mixed.csv.

python summary.py [OUTPUTS]: write the files first, with the folder that contains `STUDIES`.
"""

import runpy
import sys
from dataclasses import replace
from pathlib import Path

from attnlab.report.collect import collect, read_evaluations
from attnlab.report.record import RunRecord
from attnlab.report.results_file import format_results, read_results

SHORT = runpy.run_path(str(Path(__file__).parents[1] / "short_tables.py"))
HERE = Path(__file__).parent
GRID = runpy.run_path(str(HERE.parent / "grid.py"))
METRIC = "test/exact_match"
STUDIES = {"bottleneck": "results.csv", "bottleneck_long": "longer.csv", "bottleneck_mixed": "mixed.csv"}
"""Folder of the runs of each file: one length, four times the epochs, and one network for several lengths."""
MIXED_LENGTHS = (5, 10, 20)


def main(outputs: str | None = None) -> None:
    """Print Markdown."""
    written = [name for name in STUDIES if outputs is not None and (Path(outputs) / name).is_dir()]
    for name in written:
        study = collect([Path(outputs or "") / name])
        if name == "bottleneck_mixed":
            study = replace(study, runs=[each for run in study.finished for each in at_each_length(run)])
        (HERE / STUDIES[name]).write_text(format_results(study))
    print_lengths()
    print("### Four times the epochs, 20 tokens\n")
    study = replace(read_results(HERE / "longer.csv"), selected_metrics=(METRIC, "test/token_accuracy"))
    print(SHORT["scores"](study, parameters=True))
    print("### One network for 5 to 20 tokens\n")
    groups = GRID["group"](read_results(HERE / "mixed.csv"))
    titles = {f"length{length}": f"{length} tokens [%]" for length in MIXED_LENGTHS}
    print(GRID["table"](groups, titles, METRIC, scale=100), end="")


def at_each_length(run: RunRecord) -> list[RunRecord]:
    """Return a record for each length on which a run was evaluated."""
    records = []
    for _, result in read_evaluations(run.directory):
        (length,) = (n for n in MIXED_LENGTHS if f"data.test_lengths=[{n},{n}]" in result["overrides"])
        records.append(replace(run, variant=f"{run.variant}-length{length}", scores=result["metrics"]))
    return records


def print_lengths() -> None:
    """Print the scores at each length."""
    study = replace(read_results(HERE / "results.csv"), selected_metrics=(METRIC,))
    groups = GRID["group"](study)
    lengths = sorted(int(value.removeprefix("length")) for value in groups["additive"])
    values = {f"length{length}": f"{length} tokens [%]" for length in lengths}
    print(GRID["table"](groups, values, METRIC, scale=100))
    comparisons = GRID["compare_at_each"](study, values, "additive", ["none_matched"])
    print(SHORT["tests"](comparisons))


if __name__ == "__main__":
    main(*sys.argv[1:])
