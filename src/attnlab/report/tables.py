"""Tables of a study: final scores, training cost and comparisons, for the page and as files.

Files::

    results.csv                      one line per run in full precision, from which the tables are computed
    tables/scores.csv|md|tex         final scores by variant
    tables/costs.csv|md|tex          training cost by variant
    tables/comparisons.csv|md|tex    statistical comparison of variants
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan
from pathlib import Path

from attnlab.analysis.comparison import Comparison
from attnlab.analysis.statistics import estimate
from attnlab.analysis.study import RunRecord, Study
from attnlab.metrics import registry
from attnlab.runs.files import write_atomically

INTERVALS = "Mean over seeds ± half of the 95 % confidence interval (Student's t)."

MISSING = "–"


@dataclass(frozen=True)
class Column:
    """Heading of a column, and whether its cells are numbers."""

    name: str
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """Content of one cell.

    Attributes:
        text: formatted for display.
        value: unrounded, in the unit of the column, for sorting and CSV; None if the cell is empty.
        half_width: half-width of the 95 % interval around the value.
    """

    text: str
    value: str | float | None = None
    half_width: float | None = None


@dataclass(frozen=True)
class Table:
    """A table, with conversions to CSV, Markdown and LaTeX.

    Attributes:
        name: stem of its files.
        title: caption.
        columns: headings.
        rows: one cell per column each.
        notes: remarks printed below the table.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def csv(self) -> str:
        """Return CSV with unrounded values; half-widths of intervals are separate columns."""
        indices = range(len(self.columns))
        has_interval = [any(row[index].half_width is not None for row in self.rows) for index in indices]
        header: list[str] = []
        for column, interval in zip(self.columns, has_interval, strict=True):
            header += [column.name, f"{column.name} ±"] if interval else [column.name]
        lines: list[list[str | float | None]] = []
        for row in self.rows:
            lines.append([])
            for cell, interval in zip(row, has_interval, strict=True):
                lines[-1] += [cell.value, cell.half_width] if interval else [cell.value]
        return _csv([header, *lines])

    def markdown(self) -> str:
        """Return a GitHub-flavoured Markdown table, followed by the notes."""
        rules = ["---:" if column.numeric else "---" for column in self.columns]
        lines = [
            _markdown_line(escape_markdown(column.name) for column in self.columns),
            _markdown_line(rules),
            *(_markdown_line(escape_markdown(cell.text) for cell in row) for row in self.rows),
        ]
        notes = "".join(f"\n{escape_markdown(note)}\n" for note in self.notes)
        return "".join(f"{line}\n" for line in lines) + notes

    def latex(self) -> str:
        r"""Return a LaTeX tabular that needs `\usepackage{booktabs}`; notes are comments."""
        alignment = "".join("r" if column.numeric else "l" for column in self.columns)
        lines = [
            *(f"% {' '.join(note.split())}" for note in self.notes),
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _latex_line(column.name for column in self.columns),
            r"\midrule",
            *(_latex_line(cell.text for cell in row) for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "".join(f"{line}\n" for line in lines)


def build(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """Build the tables of a report: scores, costs and comparisons."""
    return [scores_table(study), costs_table(study), comparisons_table(comparisons, study)]


def write(tables: Iterable[Table], study: Study, folder: Path) -> None:
    """Write `results.csv` and `tables/` into a folder."""
    write_atomically(folder / "results.csv", results_csv(study))
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
        *(Column(_heading(metric)) for metric in metrics),
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
    ]
    rows = [
        [
            Cell(comparison.variant, comparison.variant),
            Cell(comparison.reference, comparison.reference),
            Cell(_heading(comparison.metric), comparison.metric),
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
        ]
        for comparison in comparisons
    ]
    families = {
        comparison.over: comparison.family_size for comparison in comparisons if comparison.family_size
    }
    sizes = [f"{size} across {over}" for over, size in families.items()]
    notes = [
        "Differences are variant - reference with uncorrected 95 % intervals. Across seeds: paired t test; "
        "the conclusion holds for other training runs. Across sentences: paired bootstrap and approximate "
        "randomisation of the outputs of all seeds together; the conclusion holds for these networks and "
        "other sentences.",
        *([f"p (Holm) is corrected for all tests of the same kind: {', '.join(sizes)}."] if sizes else []),
        *_unfinished_note(study),
    ]
    return Table("comparisons", "All comparisons", columns, rows, notes)


def results_csv(study: Study) -> str:
    """Return CSV of every run, finished or not: scores, costs, commit and package versions."""
    metrics = sorted({name for run in study.runs for name in run.scores})
    header = [
        *("variant", "seed", "status", *metrics),
        *("parameters", "steps", "seconds", "seconds_per_step", "tokens_per_second", "peak_memory_bytes"),
        *("commit", "versions", "directory", "error"),
    ]
    rows = [
        [
            *(run.variant, run.seed, run.status, *(run.scores.get(name) for name in metrics)),
            *(run.parameters, run.steps, run.seconds, run.seconds_per_step, run.tokens_per_second),
            *(run.peak_memory, run.commit),
            " ".join(f"{package}={version}" for package, version in run.versions.items()),
            *(run.directory.name, run.error),
        ]
        for run in study.runs
    ]
    return _csv([header, *rows])


LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "_": r"\_",
        "%": r"\%",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "±": r"$\pm$",
        "·": r"\textperiodcentered{}",
        "–": "--",
    }
)
"""Replacements for the characters that LaTeX does not print literally."""

MARKDOWN = re.compile(r"(?<![^\W_])_|_(?![^\W_])|[\\`*\[\]<>|~&$!]")
"""Characters that Markdown reads as markup, except underscores inside words."""


def escape_latex(text: str) -> str:
    """Escape a text so that LaTeX prints it literally, on one line."""
    return " ".join(text.split()).translate(LATEX)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it literally, in one cell of a table."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def _csv(rows: Iterable[Iterable[str | float | None]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_line(texts: Iterable[str]) -> str:
    return " & ".join(escape_latex(text) for text in texts) + r" \\"


def _heading(metric: str) -> str:
    unit = registry.unit(metric)
    return f"{registry.label(metric)} [{unit}]" if unit else registry.label(metric)


def _score(runs: Sequence[RunRecord], metric: str) -> Cell:
    values = [run.scores.get(metric) for run in runs]
    return _mean(values, scale=registry.scale(metric), digits=registry.digits(metric))


def _in_unit(metric: str, value: float | None) -> Cell:
    return _number(value, scale=registry.scale(metric), digits=registry.digits(metric))


def _mean(values: Sequence[float | None], *, digits: int, scale: float = 1) -> Cell:
    """Return the mean and interval of the values without None; no interval if all values are equal."""
    present = [value * scale for value in values if value is not None]
    if not present:
        return Cell(MISSING)
    interval = estimate(present)
    mean = _number(interval.mean, digits=digits)
    if not interval.half_width:
        return mean
    return Cell(f"{mean.text} ± {interval.half_width:,.{digits}f}", mean.value, interval.half_width)


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
