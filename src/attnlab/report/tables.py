"""Tables of a study: final scores, training cost and comparisons, for the page and as files.

Files::

    results.csv                      one line per run in full precision, from which the tables are computed
    tables/scores.csv|md|tex         final scores by variant
    tables/costs.csv|md|tex          training cost by variant
    tables/comparisons.csv|md|tex    statistical comparison of variants
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf, isfinite, isnan
from pathlib import Path

from attnlab.files.writing import write_atomically
from attnlab.metrics import registry
from attnlab.report.comparison import Comparison
from attnlab.report.results_file import format_results
from attnlab.report.statistics import Bounds, Estimate, estimate
from attnlab.report.study import RunRecord, Study
from attnlab.report.table import Cell, Column, Table, escape_markdown

INTERVALS = (
    "Mean over seeds [95 % confidence interval]: Student's t, on the logit scale for scores with two bounds "
    "and on the logarithmic scale for those that are at least 0."
)

EQUIVALENCE = "Equivalence: two one-sided paired t tests (TOST) of a difference between -margin and margin."

MISSING = "–"


def build(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """Build the tables of a report: scores, costs and comparisons."""
    return [scores_table(study), costs_table(study), comparisons_table(comparisons, study)]


def write(tables: Iterable[Table], study: Study, folder: Path) -> None:
    """Write `results.csv` and `tables/` into a folder."""
    write_atomically(folder / "results.csv", format_results(study))
    for table in tables:
        write_atomically(folder / "tables" / f"{table.name}.csv", table.csv())
        write_atomically(folder / "tables" / f"{table.name}.md", table.markdown())
        write_atomically(folder / "tables" / f"{table.name}.tex", table.latex())


def scores_table(study: Study) -> Table:
    """Build the table of final scores by variant."""
    metrics = study.metrics
    columns = [
        Column("variant", numeric=False),
        Column("seeds"),
        *(Column(heading(metric)) for metric in metrics),
    ]
    rows = [
        [Cell(variant, variant), _count(len(runs)), *(_score(runs, metric) for metric in metrics)]
        for variant, runs in study.by_variant().items()
    ]
    return Table("scores", "Final scores", columns, rows, [INTERVALS, *_unfinished_note(study)])


def with_parameters(table: Table, study: Study) -> Table:
    """Append the number of parameters to a table with one row for each variant of the study."""
    groups = study.by_variant().values()
    rows = [[*row, Cell(f"{runs[0].parameters:,}")] for row, runs in zip(table.rows, groups, strict=True)]
    return replace(table, columns=[*table.columns, Column("parameters")], rows=rows)


def comparison_list(comparisons: Iterable[Comparison]) -> str:
    """Return the summaries of comparisons as a Markdown list."""
    return "".join(f"- {escape_markdown(comparison.summary)}\n" for comparison in comparisons)


def costs_table(study: Study) -> Table:
    """Build the table of training cost by variant."""
    columns = [
        Column("variant", numeric=False),
        Column("parameters"),
        Column("training time [min]"),
        Column("time per step [ms]"),
        Column("peak memory [MiB]"),
        Column("throughput [tokens/s]"),
    ]
    rows = [
        [
            Cell(variant, variant),
            _mean([run.parameters for run in runs], digits=0),
            _mean([run.seconds for run in runs], scale=1 / 60, digits=1),
            _mean([run.seconds_per_step for run in runs], scale=1000, digits=1),
            _mean([run.peak_memory for run in runs], scale=2**-20, digits=0),
            _mean([run.tokens_per_second for run in runs], digits=0),
        ]
        for variant, runs in study.by_variant().items()
    ]
    return Table("costs", "Training cost", columns, rows, [INTERVALS, *_unfinished_note(study)])


def comparisons_table(comparisons: Sequence[Comparison], study: Study) -> Table:
    """Build the table of all comparisons with their intervals and p-values."""
    columns = [
        Column("variant", numeric=False),
        Column("reference", numeric=False),
        Column("metric", numeric=False),
        Column("across", numeric=False),
        Column("seeds"),
        Column("sentences"),
        Column("difference"),
        Column("95 % CI low"),
        Column("95 % CI high"),
        Column("effect size d_z"),
        Column("p"),
        Column("p (Holm)"),
        Column("margin"),
        Column("p of equivalence (Holm)"),
    ]
    rows = [
        [
            Cell(comparison.variant, comparison.variant),
            Cell(comparison.reference, comparison.reference),
            Cell(heading(comparison.metric), comparison.metric),
            Cell(comparison.over, comparison.over),
            _count(comparison.seeds),
            _count(comparison.sentences),
            *(
                _in_unit(comparison.metric, value)
                for value in (comparison.difference, comparison.low, comparison.high)
            ),
            _number(comparison.effect_size, digits=2),
            _p_value(comparison.p),
            _p_value(comparison.p_corrected),
            _in_unit(comparison.metric, comparison.margin),
            _p_value(comparison.p_equivalence_corrected),
        ]
        for comparison in comparisons
    ]
    size = max((comparison.family_size for comparison in comparisons), default=0)
    equivalence = any(comparison.margin is not None for comparison in comparisons)
    notes = [
        "Differences are variant - reference with uncorrected 95 % intervals. Across seeds: paired t test; "
        "the conclusion holds for other training runs. Across sentences: paired bootstrap and approximate "
        "randomisation of the outputs of all seeds together; the conclusion holds for these networks and "
        "other sentences.",
        *([f"p (Holm) is corrected for all {size} tests of this report."] if size else []),
        *([EQUIVALENCE] if equivalence else []),
        *_unfinished_note(study),
    ]
    return Table("comparisons", "All comparisons", columns, rows, notes)


def heading(metric: str) -> str:
    """Return the label of a metric with its unit in brackets."""
    unit = registry.unit(metric)
    return f"{registry.label(metric)} [{unit}]" if unit else registry.label(metric)


def _score(runs: Sequence[RunRecord], metric: str) -> Cell:
    values = [run.scores.get(metric) for run in runs]
    bounds = registry.bounds(metric)
    return _mean(values, scale=registry.scale(metric), digits=registry.digits(metric), bounds=bounds)


def _in_unit(metric: str, value: float | None) -> Cell:
    return _number(value, scale=registry.scale(metric), digits=registry.digits(metric))


def _mean(
    values: Sequence[float | None], *, digits: int, scale: float = 1, bounds: Bounds = (0, inf)
) -> Cell:
    """Return the mean and interval of the finite values, and their number if there are others."""
    present = [value for value in values if value is not None and isfinite(value)]
    if not present:
        return Cell(MISSING)
    cell = estimate_cell(estimate(present, bounds), digits=digits, scale=scale)
    if len(present) == len(values):
        return cell
    return replace(cell, text=f"{cell.text} ({len(present)} of {len(values)})")


def estimate_cell(result: Estimate, *, digits: int, scale: float = 1) -> Cell:
    """Format a mean and its interval as "12.3 [11.0, 13.5]"; no interval if it has no width."""
    mean = _number(result.mean, digits=digits, scale=scale)
    if result.low is None or result.high is None or result.low == result.high:
        return mean
    low, high = (_number(end, digits=digits, scale=scale) for end in (result.low, result.high))
    return Cell(
        f"{mean.text} [{low.text}, {high.text}]", mean.value, (scale * result.low, scale * result.high)
    )


def _number(value: float | None, *, digits: int, scale: float = 1) -> Cell:
    if value is None or isnan(value):
        return Cell(MISSING)
    return Cell(f"{round(value * scale, digits) + 0:,.{digits}f}", value * scale)  # + 0 turns -0.0 into 0.0


def _count(value: int | None) -> Cell:
    return _number(value, digits=0)


def _p_value(p: float | None) -> Cell:
    return Cell("< 0.001", p) if p is not None and p < 0.001 else _number(p, digits=3)


def _unfinished_note(study: Study) -> list[str]:
    """Return a note that lists the unfinished runs; empty if there are none."""
    runs = [f"{run.variant} seed {run.seed} ({run.status}: {run.error})" for run in study.unfinished]
    return [f"Unfinished runs, not included: {'; '.join(runs)}."] if runs else []
