"""Tables of a study: its scores, what they cost, the comparisons; for the page, and as files beside it.

Files::

    results.csv                 every run, a line each, in full precision: what all else is computed from
    tables/scores.csv|md|tex    and so costs.… and comparisons.…
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path

from attnlab.analysis.collect import RunRecord, Study
from attnlab.analysis.statistics import Comparison, Estimate, estimate
from attnlab.metrics import registry
from attnlab.runs.files import write_atomically


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell: how it reads, and what it is."""

    text: str
    value: str | float | None = None
    """To sort by, in the unit of the column; None where there is nothing."""
    half_width: float | None = None
    """Of the 95 % interval around the value."""


@dataclass(frozen=True)
class Table:
    """A table of plain cells."""

    name: str
    """Of its files."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    """What to know when reading it."""

    def csv(self) -> str:
        """For machines: values in full, an interval's half-width in a column of its own."""
        spread = [any(row[place].half_width is not None for row in self.rows) for place in self._places]
        header: list[str] = []
        for column, spreads in zip(self.columns, spread, strict=True):
            header += [column.name, f"{column.name} ±"] if spreads else [column.name]
        lines: list[list[str | float | None]] = []
        for row in self.rows:
            lines.append([])
            for cell, spreads in zip(row, spread, strict=True):
                lines[-1] += [cell.value, cell.half_width] if spreads else [cell.value]
        return _csv([header, *lines])

    def markdown(self) -> str:
        """For a README: a table as GitHub reads it, and the notes below."""
        rules = ["---:" if column.numeric else "---" for column in self.columns]
        lines = [
            _markdown_line(escape_markdown(column.name) for column in self.columns),
            _markdown_line(rules),
            *(_markdown_line(escape_markdown(cell.text) for cell in row) for row in self.rows),
        ]
        notes = "".join(f"\n{escape_markdown(note)}\n" for note in self.notes)
        return "".join(f"{line}\n" for line in lines) + notes

    def latex(self) -> str:
        r"""For a paper: a tabular with the rules of booktabs (`\usepackage{booktabs}`), notes as comments."""
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

    @property
    def _places(self) -> range:
        return range(len(self.columns))


def build(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """The tables of a report."""
    return [scores(study), costs(study), compared(comparisons, study)]


def write(tables: Iterable[Table], study: Study, folder: Path) -> None:
    """Write `results.csv` and `tables/` into a folder."""
    write_atomically(folder / "results.csv", results(study))
    for table in tables:
        write_atomically(folder / "tables" / f"{table.name}.csv", table.csv())
        write_atomically(folder / "tables" / f"{table.name}.md", table.markdown())
        write_atomically(folder / "tables" / f"{table.name}.tex", table.latex())


def scores(study: Study) -> Table:
    """Each variant's final scores."""
    metrics = study.metrics
    columns = [
        Column("variant", numeric=False),
        Column("seeds"),
        *(Column(_heading(name)) for name in metrics),
    ]
    rows = [
        [Cell(variant, variant), _count(len(runs)), *(_score(runs, metric) for metric in metrics)]
        for variant, runs in study.by_variant().items()
    ]
    return Table("scores", "Final scores", columns, rows, [INTERVALS, *_missing(study)])


def costs(study: Study) -> Table:
    """What each variant takes to train."""
    columns = [
        Column("variant", numeric=False),
        Column("parameters"),
        Column("training [min]"),
        Column("step [ms]"),
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
    return Table("costs", "What it takes to train", columns, rows, [INTERVALS, *_missing(study)])


def compared(comparisons: Sequence[Comparison], study: Study) -> Table:
    """Every comparison: what differs, by how much, and what may be concluded."""
    columns = [
        Column("variant", numeric=False),
        Column("against", numeric=False),
        Column("score", numeric=False),
        Column("over", numeric=False),
        Column("seeds"),
        Column("sentences"),
        Column("difference"),
        Column("from"),
        Column("to"),
        Column("effect d_z"),
        Column("p"),
        Column("p (Holm)"),
    ]
    rows = [
        [
            Cell(found.variant, found.variant),
            Cell(found.reference, found.reference),
            Cell(_heading(found.metric), found.metric),
            Cell(found.over, found.over),
            _count(found.seeds),
            _count(found.sentences),
            *(_in_unit(found.metric, value) for value in (found.difference, found.low, found.high)),
            _number(found.effect, digits=2),
            _p_value(found.p),
            _p_value(found.corrected),
        ]
        for found in comparisons
    ]
    families = {found.over: found.family for found in comparisons if found.family}
    told = [f"{family} over {over}" for over, family in families.items()]
    notes = [
        "Differences are variant - against, with 95 % intervals, uncorrected. Over seeds: paired t test, for "
        "networks trained anew. Over sentences: paired bootstrap and approximate randomisation of the "
        "outputs of all seeds together, for these networks and other sentences.",
        *([f"p (Holm) is corrected over all comparisons of a kind: {', '.join(told)}."] if told else []),
        *_missing(study),
    ]
    return Table("comparisons", "Comparisons", columns, rows, notes)


def results(study: Study) -> str:
    """CSV of every run, finished or not: its scores and costs as they are, and what they came from."""
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


INTERVALS = "Mean over seeds ± half of the 95 % confidence interval (Student's t)."

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
"""What LaTeX would not print as it stands."""

MARKDOWN = re.compile(r"(?<![^\W_])_|_(?![^\W_])|[\\`*\[\]<>|~&$!]")
"""What Markdown would take for markup; an underscore inside a word is none."""


def escape_latex(text: str) -> str:
    """A text that LaTeX prints as it is, on one line."""
    return " ".join(text.split()).translate(LATEX)


def escape_markdown(text: str) -> str:
    """A text that Markdown shows as it is, in one cell of a table."""
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
    """The mean of those that are there; without an interval where all are the same, as parameters are."""
    known = [value * scale for value in values if value is not None]
    if not known:
        return Cell("–")
    found: Estimate = estimate(known)
    mean = _number(found.mean, digits=digits)
    if not found.half_width:
        return mean
    return Cell(f"{mean.text} ± {found.half_width:,.{digits}f}", mean.value, found.half_width)


def _number(value: float | None, *, digits: int, scale: float = 1) -> Cell:
    if value is None or isnan(value):
        return Cell("–")
    return Cell(f"{round(value * scale, digits) + 0:,.{digits}f}", value * scale)  # + 0: no "-0.0"


def _count(value: int | None) -> Cell:
    return _number(value, digits=0)


def _p_value(p: float | None) -> Cell:
    return Cell("< 0.001", p) if p is not None and p < 0.001 else _number(p, digits=3)


def _missing(study: Study) -> list[str]:
    """A note of the runs that are in no number."""
    told = [f"{run.variant} seed {run.seed} ({run.status}: {run.error})" for run in study.unfinished]
    return [f"Not finished, and in no number: {'; '.join(told)}."] if told else []
