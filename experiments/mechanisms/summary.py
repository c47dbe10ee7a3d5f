"""Print the tables of this folder's README from results.csv, and from costs.csv that costs.py writes.

python summary.py [OUTPUTS]: with the folder that contains the runs of `mechanisms`, `mechanisms_longer`,
`mechanisms_copy` and `normalisers`, write results.csv and the figures first.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from matplotlib.figure import Figure

from attnlab.analysis.collect import collect
from attnlab.analysis.study import RunRecord
from attnlab.plotting.files import save
from attnlab.plotting.style import COLOURS
from attnlab.report.table import Cell, Column, Table

HERE = Path(__file__).parent
RANGES = {"3–12": None, "13–24": [13, 24], "25–48": [25, 48]}
"""Test lengths; None for the lengths of the training data."""
ALIGNED = "test/attention/alignment_accuracy"
TITLES = {
    "mechanisms": "Reversal",
    "mechanisms_longer": "Reversal, trained for 20 epochs",
    "mechanisms_copy": "Copying",
    "normalisers": "Reversal, other normalisers of additive scores",
}


class Cost(NamedTuple):
    """Cost of a training step, formatted.

    Attributes:
        time: ms on the lengths of the training data.
        relative_time: time at length 50 as a multiple of additive attention's.
        memory: peak memory in MB at length 50, besides weights and optimizer state.
    """

    time: str
    relative_time: str
    memory: str


class Result(NamedTuple):
    """Scores of one run.

    Attributes:
        seed: random seed.
        parameters: number of trainable parameters.
        exact: exact match by range of lengths.
        aligned: alignment accuracy of the attention.
        steps: optimizer steps until validation exact match reached 99 %; None if it did not.
    """

    seed: int
    parameters: int
    exact: dict[str, float]
    aligned: float | None
    steps: int | None

    @classmethod
    def from_run(cls, run: RunRecord) -> Result:
        """Read the scores of a run and of its evaluations on longer sequences."""
        assert run.parameters is not None
        exact = {lengths: exact_match(run, limits) for lengths, limits in RANGES.items()}
        first = next((step + 1 for step, value in run.series["val/exact_match"] if value >= 0.99), None)
        return cls(run.seed, run.parameters, exact, run.scores.get(ALIGNED), first)


def main(outputs: str | None = None) -> None:
    """Print the tables."""
    if outputs is not None:
        write_results(Path(outputs))
    costs, studies = read_costs(), read_results()
    for study, title in TITLES.items():
        results = studies[study]
        print(f"### {title}\n\n{table(results, costs if study == 'mechanisms' else {}).markdown()}")
        if outputs is not None and study in ("mechanisms", "mechanisms_copy"):
            save(draw(results), HERE / f"{study.replace('mechanisms', 'lengths').replace('_', '-')}.png")


def write_results(outputs: Path) -> None:
    """Write results.csv from trained and evaluated runs."""
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ("study", "variant", "seed", "parameters", *RANGES, "alignment_accuracy", "steps_to_99")
        )
        for study in TITLES:
            for variant, runs in read(outputs / study).items():
                for run in runs:
                    aligned = "" if run.aligned is None else run.aligned
                    row = (run.seed, run.parameters, *run.exact.values(), aligned, run.steps or "")
                    writer.writerow((study, variant, *row))


def read_results() -> dict[str, dict[str, list[Result]]]:
    """Read results.csv: the results of each study by variant, in the order of the file, best first."""
    studies: dict[str, dict[str, list[Result]]] = {}
    with (HERE / "results.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            aligned, steps = row["alignment_accuracy"], row["steps_to_99"]
            result = Result(
                seed=int(row["seed"]),
                parameters=int(row["parameters"]),
                exact={lengths: float(row[lengths]) for lengths in RANGES},
                aligned=float(aligned) if aligned else None,
                steps=int(steps) if steps else None,
            )
            studies.setdefault(row["study"], {}).setdefault(row["variant"], []).append(result)
    return studies


def read(folder: Path) -> dict[str, list[Result]]:
    """Read the results of each variant, best first."""
    groups = collect([folder]).by_variant()
    results = {variant: [Result.from_run(run) for run in runs] for variant, runs in groups.items()}
    ranks = {name: [-fmean(run.exact[k] for run in runs) for k in RANGES] for name, runs in results.items()}
    return {variant: results[variant] for variant in sorted(results, key=ranks.__getitem__)}


def exact_match(run: RunRecord, lengths: list[int] | None) -> float:
    """Return exact match on the test split of the run, or of its evaluation on these lengths."""
    if lengths is None:
        return run.scores["test/exact_match"]
    for path in (run.directory / "evaluations").glob("*/result.json"):
        result = json.loads(path.read_text())
        if f"data.test_lengths={lengths}".replace(" ", "") in result["overrides"]:
            return float(result["metrics"]["test/exact_match"])
    raise SystemExit(f"{run.directory} was not evaluated on lengths {lengths}")


def read_costs() -> dict[str, Cost]:
    """Read the cost of a training step by mechanism."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    with (HERE / "costs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["mechanism"], row["lengths"]), []).append(row)
    return {
        name: Cost(
            f"{median(float(row['ms']) for row in rows[name, 'task']):.1f}",
            f"{median(float(row['times_additive']) for row in rows[name, '50']):.2f}",
            rows[name, "50"][0]["peak_mb"],
        )
        for name, lengths in rows
        if lengths == "task"
    }


def table(results: dict[str, list[Result]], costs: dict[str, Cost]) -> Table:
    """Return a table with one row per variant, and its costs if they are given."""
    columns = [Column("variant", numeric=False)]
    columns += [
        Column(name)
        for name in ("parameters", *(f"{k} [%]" for k in RANGES), "alignment accuracy [%]", "steps to 99 %")
    ]
    if costs:
        columns += [Column(name) for name in ("ms per step", "relative time, length 50", "MB, length 50")]
    rows = []
    for variant, runs in results.items():
        scores = [percent([run.exact[lengths] for run in runs]) for lengths in RANGES]
        aligned = percent([run.aligned for run in runs if run.aligned is not None])
        steps = median_steps([run.steps for run in runs])
        texts = (variant, f"{runs[0].parameters:,}", *scores, aligned, steps, *costs.get(variant, ()))
        rows.append([Cell(text) for text in texts])
    return Table("mechanisms", "Mechanisms", columns, rows)


def median_steps(steps: Sequence[int | None]) -> str:
    """Return the median over the seeds that reached 99 %, and their number unless all did."""
    reached = [step for step in steps if step is not None]
    if not reached:
        return "–"
    share = "" if len(reached) == len(steps) else f" ({len(reached)} of {len(steps)})"
    return f"{median(reached):.0f}{share}"


def percent(values: Sequence[float]) -> str:
    """Return the mean over seeds, with minimum and maximum if they differ."""
    if not values:
        return "–"
    mean, low, high = (100 * value for value in (fmean(values), min(values), max(values)))
    return f"{mean:.1f}" + (f" ({low:.1f}–{high:.1f})" if f"{low:.1f}" != f"{high:.1f}" else "")


def draw(results: dict[str, list[Result]]) -> Figure:
    """Draw one row per mechanism, with a bar per range of lengths and a dot per seed."""
    figure = Figure(figsize=(7, 0.3 * len(results) + 1), layout="constrained")
    panels = figure.subplots(1, len(RANGES), sharey=True)
    for axes, lengths, colour in zip(panels, RANGES, COLOURS, strict=False):
        for place, runs in enumerate(results.values()):
            values = [100 * run.exact[lengths] for run in runs]
            axes.barh(place, fmean(values), color=colour, alpha=0.45)
            axes.plot(values, [place] * len(values), ".", color="black", ms=4)
        axes.set(title=f"lengths {lengths}", xlim=(-2, 104), xlabel="exact match, %")
        axes.set_yticks(range(len(results)), list(results))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].margins(y=0.01)
    panels[0].invert_yaxis()
    return figure


if __name__ == "__main__":
    main(*sys.argv[1:])
