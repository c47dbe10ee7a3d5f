"""Print the tables of this folder's README from results.csv, and from costs.csv that costs.py writes.

python summary.py [OUTPUTS]: with the folder that contains the runs of `mechanisms`, `mechanisms_longer`,
`mechanisms_copy` and `normalisers`, write results.csv and the figures first.
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import pandas as pd
from matplotlib.figure import Figure

from attnlab.report.collect import collect, read_evaluations
from attnlab.report.files import save
from attnlab.report.results_file import format_results, read_results
from attnlab.report.study import RunRecord, Study
from attnlab.report.style import COLOURS
from attnlab.report.tables import markdown, mean_and_range

HERE = Path(__file__).parent
RANGES = {"3–12": None, "13–24": [13, 24], "25–48": [25, 48]}
"""Test lengths; None for the lengths of the training data."""
EXACT = {lengths: f"test/{lengths}/exact_match" for lengths in RANGES}
"""Score of each range of lengths."""
ALIGNED, STEPS = "test/attention/alignment_accuracy", "val/steps_to_99"
RESULTS = HERE / "results.csv"
Variants = dict[str, list[RunRecord]]
TITLES = {
    "mechanisms": "Reversal",
    "mechanisms_longer": "Reversal, trained for 20 epochs",
    "mechanisms_copy": "Copying",
    "normalisers": "Reversal, other normalisers of additive scores",
}
SHOWN = ("mechanisms", "mechanisms_copy")
"""Studies that have a table; the scores of the others are in results.csv only."""


def main(outputs: str | None = None) -> None:
    """Print the tables."""
    if outputs is not None:
        runs = [
            replace(with_lengths(run), variant=f"{study}: {run.variant}")
            for study in TITLES
            for run in collect([Path(outputs) / study]).runs
        ]
        RESULTS.write_text(format_results(Study("mechanisms", runs)))
    costs, runs = read_costs(), read_results(RESULTS).runs
    for study, title in TITLES.items():
        variants = by_variant(runs, f"{study}: ")
        if study in SHOWN:
            print(f"### {title}\n\n{table(variants, costs if study == 'mechanisms' else {})}")
        if outputs is not None and study in ("mechanisms", "mechanisms_copy"):
            save(draw(variants), HERE / f"{study.replace('mechanisms', 'lengths').replace('_', '-')}.png")


def with_lengths(run: RunRecord) -> RunRecord:
    """Replace the scores by exact match in each range of lengths, alignment and the steps to 99 %."""
    scores = {EXACT[lengths]: exact_match(run, limits) for lengths, limits in RANGES.items()}
    if ALIGNED in run.scores:
        scores[ALIGNED] = run.scores[ALIGNED]
    reached = [step + 1 for step, value in run.series["val/exact_match"] if value >= 0.99]
    return replace(run, scores=scores | ({STEPS: reached[0]} if reached else {}))


def by_variant(runs: Sequence[RunRecord], prefix: str = "") -> Variants:
    """Return the runs of each variant whose name has this prefix, best first."""
    variants: Variants = {}
    for run in runs:
        if run.variant.startswith(prefix):
            variants.setdefault(run.variant.removeprefix(prefix), []).append(run)
    ranks = {
        name: [-fmean(run.scores[metric] for run in runs) for metric in EXACT.values()]
        for name, runs in variants.items()
    }
    return {name: variants[name] for name in sorted(ranks, key=ranks.__getitem__)}


def exact_match(run: RunRecord, lengths: list[int] | None) -> float:
    """Return exact match on the test split of the run, or of its evaluation on these lengths."""
    if lengths is None:
        return run.scores["test/exact_match"]
    for _, result in read_evaluations(run.directory):
        if f"data.test_lengths={lengths}".replace(" ", "") in result["overrides"]:
            return float(result["metrics"]["test/exact_match"])
    raise SystemExit(f"{run.directory} was not evaluated on lengths {lengths}")


def read_costs() -> dict[str, tuple[str]]:
    """Read the time of a training step at length 50, as a multiple of additive attention's, by mechanism."""
    ratios: dict[str, list[float]] = {}
    with (HERE / "costs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["lengths"] == "50":
                ratios.setdefault(row["mechanism"], []).append(float(row["times_additive"]))
    return {name: (f"{median(rounds):.2f}",) for name, rounds in ratios.items()}


def table(variants: Variants, costs: dict[str, tuple[str]]) -> str:
    """Return a Markdown table with one row per variant, and its relative time if it is given."""
    columns = ["variant", *(f"{k} [%]" for k in RANGES), "alignment accuracy [%]", "steps to 99 %"]
    if costs:
        columns.append("relative time, length 50")
    rows = []
    for variant, runs in variants.items():
        scores = [percent(runs, metric) for metric in (*EXACT.values(), ALIGNED)]
        rows.append((variant, *scores, median_steps(runs), *costs.get(variant, ())))
    return markdown(pd.DataFrame(rows, columns=columns).set_index("variant"))


def median_steps(runs: Sequence[RunRecord]) -> str:
    """Return the median over the seeds that reached 99 %, and their number unless all did."""
    reached = [run.scores[STEPS] for run in runs if STEPS in run.scores]
    if not reached:
        return "–"
    share = "" if len(reached) == len(runs) else f" ({len(reached)} of {len(runs)})"
    return f"{median(reached):.0f}{share}"


def percent(runs: Sequence[RunRecord], metric: str) -> str:
    """Return the mean over the runs that have a score, with minimum and maximum if they differ."""
    values = [run.scores[metric] for run in runs if metric in run.scores]
    if not values:
        return "–"
    return mean_and_range([100 * value for value in values], digits=1)


def draw(variants: Variants) -> Figure:
    """Draw one row per mechanism, with a bar per range of lengths and a dot per seed."""
    figure = Figure(figsize=(7, 0.3 * len(variants) + 1), layout="constrained")
    panels = figure.subplots(1, len(RANGES), sharey=True)
    for axes, lengths, colour in zip(panels, RANGES, COLOURS, strict=False):
        for place, runs in enumerate(variants.values()):
            values = [100 * run.scores[EXACT[lengths]] for run in runs]
            axes.barh(place, fmean(values), color=colour, alpha=0.45)
            axes.plot(values, [place] * len(values), ".", color="black", ms=4)
        axes.set(title=f"lengths {lengths}", xlim=(-2, 104), xlabel="exact match, %")
        axes.set_yticks(range(len(variants)), list(variants))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].margins(y=0.01)
    panels[0].invert_yaxis()
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
