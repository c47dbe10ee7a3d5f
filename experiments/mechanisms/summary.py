"""Make this folder's results.csv and lengths.png of trained and evaluated runs, and print its table.

python summary.py RUNS_DIR [BENCH_DIR]: the folder of run directories, and one with what
`attnlab bench attention=NAME --json BENCH_DIR/NAME.json` wrote.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median

from matplotlib.figure import Figure

from attnlab.figures import COLOURS, save
from attnlab.report.collect import RunRecord, collect

HERE = Path(__file__).parent
RANGES = {"3–12": None, "13–24": [13, 24], "25–48": [25, 48]}
"""The lengths tested on; None for those of training."""
COLUMNS = (
    "mechanism",
    "parameters",
    *RANGES,
    "alignment accuracy",
    "steps to 99 %",
    "ms a step",
    "peak MB of a step",
)


def main(runs_folder: str, bench_folder: str | None = None) -> None:
    """Write the files, and print the table."""
    groups = collect([Path(runs_folder)]).by_variant()
    exact = {
        variant: {lengths: [exact_match(run, wanted) for run in runs] for lengths, wanted in RANGES.items()}
        for variant, runs in groups.items()
    }
    order = sorted(groups, key=lambda variant: [-fmean(values) for values in exact[variant].values()])
    costs = {variant: cost(bench_folder, variant) for variant in order}
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("mechanism", "seed", "parameters", *RANGES, "alignment_accuracy", "steps_to_99"))
        for variant in order:
            for place, run in enumerate(groups[variant]):
                scores = [exact[variant][lengths][place] for lengths in RANGES]
                aligned = run.scores.get("test/attention/alignment_accuracy", "")
                writer.writerow((variant, run.seed, run.parameters, *scores, aligned, steps_to_99(run) or ""))
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    for variant in order:
        runs = groups[variant]
        aligned = [run.scores.get("test/attention/alignment_accuracy") for run in runs]
        lines.append(
            [
                f"`{variant}`",
                f"{runs[0].parameters:,}",
                *(percent(values) for values in exact[variant].values()),
                percent([value for value in aligned if value is not None]),
                reached(runs),
                *costs[variant],
            ]
        )
    print("".join(f"| {' | '.join(line)} |\n" for line in lines))
    save(draw({variant: exact[variant] for variant in order}), HERE / "lengths.png")


def exact_match(run: RunRecord, lengths: list[int] | None) -> float:
    """Of the run's own test split, or of an evaluation on these lengths."""
    if lengths is None:
        return run.scores["test/exact_match"]
    for path in (run.directory / "evaluations").glob("*/result.json"):
        result = json.loads(path.read_text())
        if f"data.test_lengths={lengths}".replace(" ", "") in result["overrides"]:
            return float(result["metrics"]["test/exact_match"])
    raise SystemExit(f"{run.directory} was not evaluated on lengths {lengths}")


def steps_to_99(run: RunRecord) -> int | None:
    """Optimizer steps until a validation first had 99 % exact match."""
    return next((step + 1 for step, value in run.series["val/exact_match"] if value >= 0.99), None)


def reached(runs: Sequence[RunRecord]) -> str:
    """The median over the seeds that came to 99 %, and how many did, where not all."""
    steps = [found for run in runs if (found := steps_to_99(run)) is not None]
    if not steps:
        return "–"
    return f"{median(steps):.0f}" + ("" if len(steps) == len(runs) else f" ({len(steps)} of {len(runs)})")


def percent(values: Sequence[float]) -> str:
    """Mean over seeds, and the least and the most where they differ."""
    if not values:
        return "–"
    mean, low, high = (100 * value for value in (fmean(values), min(values), max(values)))
    return f"{mean:.1f}" + (f" ({low:.1f}–{high:.1f})" if f"{low:.1f}" != f"{high:.1f}" else "")


def cost(folder: str | None, variant: str) -> tuple[str, str]:
    """Least time of a training step over rounds, and its peak memory, as `attnlab bench` measured them."""
    path = Path(folder or ".") / f"{variant}.json"
    if not path.is_file():
        return "–", "–"
    step = json.loads(path.read_text())["rows"][0]
    return f"{1000 * min(step['seconds']):.1f}", f"{step['peak_memory'] / 1e6:.1f}"


def draw(exact: dict[str, dict[str, list[float]]]) -> Figure:
    """A row for each mechanism, a bar for each range of lengths, a dot for each seed."""
    figure = Figure(figsize=(7, 0.42 * len(exact) + 1), layout="constrained")
    panels = figure.subplots(1, len(RANGES), sharey=True)
    for axes, lengths, colour in zip(panels, RANGES, COLOURS, strict=False):
        for place, values in enumerate(scores[lengths] for scores in exact.values()):
            axes.barh(place, 100 * fmean(values), color=colour, alpha=0.45)
            axes.plot([100 * value for value in values], [place] * len(values), ".", color="black", ms=4)
        axes.set(title=f"lengths {lengths}", xlim=(-2, 104), xlabel="exact match, %")
        axes.set_yticks(range(len(exact)), list(exact))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].margins(y=0.01)
    panels[0].invert_yaxis()
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
