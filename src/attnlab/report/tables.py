"""Tables of a study, for the page and as CSV, Markdown and LaTeX files.

Files::

    results.csv                      one line per run in full precision, from which the tables are computed
    tables/scores.csv|md|tex         final scores by variant
    tables/costs.csv|md|tex          training cost by variant
    tables/comparisons.csv|md|tex    statistical comparison of variants
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from statistics import fmean

from attnlab.files.writing import write_atomically
from attnlab.metrics import registry
from attnlab.report.comparison import Comparison
from attnlab.report.resampling import interval_over_sentences
from attnlab.report.results_file import format_csv, format_results
from attnlab.report.statistics import Bounds, Estimate, estimate
from attnlab.report.study import RunRecord, Study, macro_groups, mixed_tokenizers, undefined_scores

INTERVALS = (
    "Mean over seeds [95 % confidence interval]: Student's t, on the logit scale for scores with two bounds "
    "and on the logarithmic scale for those that are at least 0."
)

MACRO = (
    "Macro average: mean over variants that differ in their data alone, such as languages; its interval is "
    "over seeds, if all variants have the same ones."
)
OVER_SENTENCES = (
    "Over {noun}: 95 % interval of the bootstrap over the test {noun}, of the outputs of all seeds "
    "together. It shows how far the score of these networks depends on the choice of {noun}."
)

EQUIVALENCE = "Equivalence: two one-sided paired t tests (TOST) of a difference between -margin and margin."

MISSING = "–"

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
        "τ": r"$\tau$",
    }
)
"""Replacements for the characters that LaTeX does not print literally."""

MARKDOWN = re.compile(r"(?<![^\W_])_|_(?![^\W_])|[\\`*\[\]<>|~&$!]")
"""Characters that Markdown reads as markup, except underscores inside words."""


@dataclass(frozen=True)
class Column:
    """Heading of a column, and whether its cells are numbers."""

    name: str
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """Content of one cell."""

    text: str  # formatted for display
    # unrounded, in the unit of the column, for sorting and CSV; None if the cell is empty
    value: str | float | None = None
    interval: tuple[float, float] | None = None  # ends of the 95 % interval of the value


@dataclass(frozen=True)
class Table:
    """Columns and rows of a table."""

    name: str  # stem of its files
    title: str  # caption
    columns: Sequence[Column]  # headings
    rows: Sequence[Sequence[Cell]]  # one cell per column each
    notes: Sequence[str] = ()  # remarks printed below the table

    def csv(self) -> str:
        """Return CSV with unrounded values; the ends of intervals are separate columns."""
        has_interval = [any(cell.interval for cell in cells) for cells in zip(*self.rows, strict=True)]
        header: list[str] = []
        for column, interval in zip(self.columns, has_interval or [False] * len(self.columns), strict=True):
            header += [column.name, *(f"{column.name} {end}" for end in ("low", "high") if interval)]
        lines: list[list[str | float | None]] = []
        for row in self.rows:
            lines.append([])
            for cell, interval in zip(row, has_interval, strict=True):
                lines[-1] += [cell.value, *((cell.interval or (None, None)) if interval else ())]
        return format_csv([header, *lines])

    def markdown(self) -> str:
        """Return a GitHub-flavoured Markdown table, followed by the notes."""
        cells = [
            [escape_markdown(column.name) for column in self.columns],
            ["---:" if column.numeric else "---" for column in self.columns],
            *([escape_markdown(cell.text) for cell in row] for row in self.rows),
        ]
        notes = (f"\n{escape_markdown(note)}\n" for note in self.notes)
        return "".join([*(f"| {' | '.join(line)} |\n" for line in cells), *notes])

    def latex(self) -> str:
        r"""Return a LaTeX tabular that needs `\usepackage{booktabs}`; notes are comments."""
        alignment = "".join("r" if column.numeric else "l" for column in self.columns)
        header, *rows = (
            " & ".join(escape_latex(text) for text in texts) + r" \\"
            for texts in (
                [column.name for column in self.columns],
                *([cell.text for cell in row] for row in self.rows),
            )
        )
        lines = [
            *(f"% {' '.join(note.split())}" for note in self.notes),
            rf"\begin{{tabular}}{{{alignment}}}",
            *(r"\toprule", header, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"),
        ]
        return "".join(f"{line}\n" for line in lines)


def escape_latex(text: str) -> str:
    """Escape a text so that LaTeX prints it literally, on one line."""
    return " ".join(text.split()).translate(LATEX)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it literally, in one cell of a table."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def build_tables(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """Build the tables of a report: scores, costs and comparisons."""
    return [scores_table(study), costs_table(study), comparisons_table(comparisons, study)]


def write_tables(tables: Iterable[Table], study: Study, folder: Path) -> None:
    """Write `results.csv` and `tables/` into a folder, with a note on the unfinished runs in each table."""
    write_atomically(folder / "results.csv", format_results(study))
    unfinished = Counter(run.status for run in study.unfinished)
    counts = ", ".join(f"{count} {status}" for status, count in unfinished.items())
    note = [f"Not included: {unfinished.total()} unfinished runs ({counts})."] if unfinished else []
    for each in tables:
        table = replace(each, notes=[*each.notes, *note])
        for suffix, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", table.latex())):
            write_atomically(folder / "tables" / f"{table.name}.{suffix}", text)


def scores_table(study: Study) -> Table:
    """Build the table of final scores by variant, with the interval over sentences where counts exist."""
    columns = [Column("variant", numeric=False), Column("seeds")]
    groups = study.by_variant()
    rows = [[Cell(variant, variant), count_cell(len(runs))] for variant, runs in groups.items()]
    averages = macro_groups(study)
    averaged = [[Cell(name, name), Cell("")] for name in averages]
    notes = [INTERVALS]
    for metric in study.metrics:
        columns.append(Column(heading(metric)))
        over_sentences = [_interval_over_sentences(runs, metric) for runs in groups.values()]
        for row, runs in zip(rows, groups.values(), strict=True):
            row.append(_mean_score([run.score(metric) for run in runs], metric))
        for row, variants in zip(averaged, averages.values(), strict=True):
            row.append(_macro_average([groups[variant] for variant in variants], metric))
        if any(cell.text for cell in over_sentences):
            notes = [INTERVALS, OVER_SENTENCES.format(noun=study.noun)]
            columns.append(Column(f"{heading(metric)} over {study.noun}"))
            for row, cell in zip(rows, over_sentences, strict=True):
                row.append(cell)
            for row in averaged:
                row.append(Cell(""))
    if averages:
        notes.append(MACRO)
    rows += averaged
    return Table(
        "scores", "Final scores", columns, rows, [*notes, *undefined_scores(study), *mixed_tokenizers(study)]
    )


def with_parameters(table: Table, study: Study) -> Table:
    """Append the number of parameters to a table with one row for each variant of the study."""
    groups = study.by_variant().values()
    counts = [Cell(f"{runs[0].parameters:,}") for runs in groups]
    counts += [Cell("")] * (len(table.rows) - len(counts))  # macro averages
    rows = [[*row, cell] for row, cell in zip(table.rows, counts, strict=True)]
    return replace(table, columns=[*table.columns, Column("parameters")], rows=rows)


def costs_table(study: Study) -> Table:
    """Build the table of training cost by variant."""
    costs: dict[str, tuple[Callable[[RunRecord], float | None], float, int]] = {
        "parameters": (lambda run: run.parameters, 1, 0),
        "training time [min]": (lambda run: run.seconds, 1 / 60, 1),
        "time per step [ms]": (lambda run: run.seconds_per_step, 1000, 1),
        "peak memory [MiB]": (lambda run: run.peak_memory, 2**-20, 0),
        "throughput [tokens/s]": (lambda run: run.tokens_per_second, 1, 0),
    }  # the cost of a run, and the factor and the decimal places to display it with
    columns = [Column("variant", numeric=False), *map(Column, costs)]
    rows = [
        [
            Cell(variant, variant),
            *(_mean([cost(run) for run in runs], scale=scale, digits=n) for cost, scale, n in costs.values()),
        ]
        for variant, runs in study.by_variant().items()
    ]
    return Table("costs", "Training cost", columns, rows, [INTERVALS])


def comparisons_table(comparisons: Sequence[Comparison], study: Study) -> Table:
    """Build the table of all comparisons; the tests over seeds and over sentences of a pair are adjacent."""
    pairs: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in comparisons:
        pairs.setdefault((each.metric, each.variant, each.reference), []).append(each)
    texts = ("variant", "reference", "metric", "across")
    noun = study.noun
    numbers = ("seeds", noun, "difference", "95 % CI low", "95 % CI high", "effect size d_z")
    equivalence = any(comparison.margin is not None for comparison in comparisons)
    tests = ("p", "p (Holm)", *(("margin", "p of equivalence (Holm)") if equivalence else ()))
    columns = [*(Column(name, numeric=False) for name in texts), *map(Column, (*numbers, *tests))]
    rows = [
        [
            Cell(comparison.variant, comparison.variant),
            Cell(comparison.reference, comparison.reference),
            Cell(heading(comparison.metric), comparison.metric),
            Cell(noun if comparison.over == "sentences" else comparison.over, comparison.over),
            count_cell(comparison.seeds),
            count_cell(comparison.sentences),
            _in_unit(comparison.metric, comparison.difference),
            _in_unit(comparison.metric, comparison.low),
            _in_unit(comparison.metric, comparison.high),
            _number(comparison.effect_size, digits=2),
            _p_value(comparison.p),
            _p_value(comparison.p_corrected),
            _in_unit(comparison.metric, comparison.margin),
            _p_value(comparison.p_equivalence_corrected),
        ][: len(columns)]
        for pair in pairs.values()
        for comparison in pair
    ]
    size = max((comparison.family_size for comparison in comparisons), default=0)
    notes = [
        "Differences are variant - reference with uncorrected 95 % intervals. Across seeds: paired t test; "
        f"the conclusion holds for other training runs. Across {noun}: paired bootstrap and approximate "
        "randomisation of the outputs of all seeds together; the conclusion holds for these networks and "
        f"other {noun}.",
        *([f"p (Holm) is corrected for all {size} tests of this report."] if size else []),
        *([EQUIVALENCE] if equivalence else []),
    ]
    return Table("comparisons", "All comparisons", columns, rows, notes)


def comparison_list(comparisons: Iterable[Comparison]) -> str:
    """Return the summaries of comparisons as a Markdown list."""
    return "".join(f"- {escape_markdown(comparison.summary)}\n" for comparison in comparisons)


def heading(metric: str) -> str:
    """Return the label of a metric with its unit in brackets."""
    return registry.metric(metric).heading


def count_cell(count: int | None) -> Cell:
    """Return a cell with a whole number."""
    return _number(count, digits=0)


def metric_cell(metric: str, result: Estimate) -> Cell:
    """Format the estimate of a metric in its unit; see `estimate_cell`."""
    described = registry.metric(metric)
    return estimate_cell(result, digits=described.digits, scale=described.scale)


def estimate_cell(result: Estimate, *, digits: int, scale: float = 1) -> Cell:
    """Format a mean and its interval as "12.3 [11.0, 13.5]"; no interval if it has no width."""
    mean = _number(result.mean, digits=digits, scale=scale)
    if result.low is None or result.high is None or result.low == result.high:
        return mean
    low, high = (_number(end, digits=digits, scale=scale) for end in (result.low, result.high))
    interval = scale * result.low, scale * result.high
    return Cell(f"{mean.text} [{low.text}, {high.text}]", mean.value, interval)


def mean_and_range(values: Sequence[float], *, digits: int) -> str:
    """Format the mean, and the lowest and the highest value if they differ: "97.0 (95.1–98.6)"."""
    mean, low, high = (f"{value:.{digits}f}" for value in (fmean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low}–{high})"


def _macro_average(groups: Sequence[Sequence[RunRecord]], metric: str) -> Cell:
    """Format the mean over variants: of each seed if all variants have the same ones, else of their means."""
    by_seed = [
        {run.seed: score for run in runs if (score := run.score(metric)) is not None} for runs in groups
    ]
    if not all(by_seed):
        return Cell(MISSING)
    seeds = set.intersection(*(set(scores) for scores in by_seed))
    complete = all(seeds == scores.keys() for scores in by_seed)
    values = (
        [fmean(scores[seed] for scores in by_seed) for seed in sorted(seeds)]
        if complete
        else [fmean(fmean(scores.values()) for scores in by_seed)]
    )
    return _mean_score(values, metric)


def _interval_over_sentences(runs: Sequence[RunRecord], metric: str) -> Cell:
    """Format the bootstrap interval over sentences of a variant; its value is the mean over seeds."""
    interval = interval_over_sentences(runs, metric)
    if interval is None:
        return Cell("")
    mean = fmean(score for run in runs if (score := run.score(metric)) is not None)
    cell = metric_cell(metric, Estimate(mean, *interval, len(runs)))
    return replace(cell, text=cell.text.partition(" ")[2] or cell.text)


def _mean_score(values: Sequence[float | None], metric: str) -> Cell:
    described = registry.metric(metric)
    return _mean(values, scale=described.scale, digits=described.digits, bounds=described.bounds)


def _mean(
    values: Sequence[float | None], *, digits: int, scale: float = 1, bounds: Bounds = (0, inf)
) -> Cell:
    """Format the mean and interval of the values that are present, and their number if others are not."""
    present = [value for value in values if value is not None]
    if not present:
        return Cell(MISSING)
    cell = estimate_cell(estimate(present, bounds), digits=digits, scale=scale)
    if len(present) == len(values):
        return cell
    return replace(cell, text=f"{cell.text} ({len(present)} of {len(values)})")


def _in_unit(metric: str, value: float | None) -> Cell:
    described = registry.metric(metric)
    return _number(value, scale=described.scale, digits=described.digits)


def _number(value: float | None, *, digits: int, scale: float = 1) -> Cell:
    if value is None or not isfinite(value):
        return Cell(MISSING)
    return Cell(f"{round(value * scale, digits) + 0:,.{digits}f}", value * scale)  # + 0 turns -0.0 into 0.0


def _p_value(p: float | None) -> Cell:
    return Cell("< 0.001", p) if p is not None and p < 0.001 else _number(p, digits=3)
