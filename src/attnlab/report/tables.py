"""Tables of a study as pandas data frames, for the page and as CSV, Markdown and LaTeX files.

Files::

    results.csv                      one line per run in full precision, from which the tables are computed
    tables/scores.csv|md|tex         final scores by variant
    tables/costs.csv|md|tex          training cost by variant
    tables/comparisons.csv|md|tex    statistical comparison of variants
    tables/errors-*.csv|md|tex       most frequent errors of words, see `attnlab.report.errors`
    errors/*.csv                     all errors of words, see `attnlab.metrics.errors.Errors`
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich.table import Table as TerminalTable
from rich.text import Text

from attnlab.files.terminal import escape_control_characters
from attnlab.files.writing import write_atomically
from attnlab.metrics import registry
from attnlab.report.comparison import Comparison
from attnlab.report.record import RunRecord
from attnlab.report.resampling import interval_over_sentences
from attnlab.report.results_file import escape_formula, format_results
from attnlab.report.statistics import Bounds, Estimate, estimate
from attnlab.report.study import Study, kept_apart, mixed_tokenizers, scores_of, undefined_scores
from attnlab.report.variants import SEPARATOR

INTERVALS = (
    "Mean over seeds [95 % confidence interval]: Student's t, on the logit scale for scores with two bounds "
    "and on the logarithmic scale for those that are at least 0."
)

MACRO = (
    "Macro average: mean over variants that differ in their data alone, such as languages; its interval is "
    "over seeds, if all variants have the same ones, and else over the data sets."
)
OVER_SENTENCES = (
    "Over {noun}: 95 % interval of the bootstrap over the test {noun}, of the outputs of all seeds "
    "together. It shows how far the score of these networks depends on the choice of {noun}."
)

ACROSS_DATA = (
    "Across data sets: paired t test of the mean differences over seeds; the conclusion holds for other data "
    "sets of this kind."
)

MISSING = "–"

LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "{}$&#_%"},
        "\\": r"\textbackslash{}",
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


@dataclass(frozen=True, eq=False)
class Table:
    """A table as two frames with equal rows: formatted for readers, and unrounded for CSV and sorting.

    The levels of the index are the texts that name a row, and the columns are numbers in their units. An
    interval is part of the text of a cell, and two further columns of the unrounded values.
    """

    name: str  # stem of its files
    title: str  # caption
    text: pd.DataFrame  # formatted cells
    values: pd.DataFrame  # unrounded; None where a cell is empty
    notes: Sequence[str] = ()  # remarks printed below the table
    # 1 for columns of which the highest mean is the best, -1 for the lowest; they are bold in LaTeX
    signs: Mapping[str, int] = field(default_factory=dict)

    def csv(self) -> str:
        """Return CSV with unrounded values; the ends of intervals are separate columns."""
        frame = self.values.reset_index().rename(columns=escape_formula)
        for name in frame.columns[: self.values.index.nlevels]:
            frame[name] = frame[name].map(escape_formula)
        text: str = frame.to_csv(index=False, lineterminator="\n")
        return text

    def markdown(self) -> str:
        """Return a Markdown table, followed by the notes; see `markdown`."""
        return markdown(self.text, self.notes)

    def latex(self, columns: Sequence[str] = ()) -> str:
        r"""Return a LaTeX tabular that needs `\usepackage{booktabs}`; notes are comments.

        The best means are bold, those of each data set if there are several. `columns` are the columns to
        write; all by default.
        """
        cells = self.text[[*columns] or [*self.text.columns]].map(escape_latex)
        one = cells.index.nlevels == 1
        blocks = np.array([""] * len(cells) if one else [*cells.index.get_level_values(0)], dtype=object)
        for name in cells.columns.intersection([*self.signs]):
            means = self.signs[name] * self.values[name].astype(float)
            for block in {*blocks}:
                rows = blocks == block
                for row in np.flatnonzero(rows & (means == means[rows].max()) & (np.sum(rows) > 1)):
                    mean, bracket, interval = cells[name].iloc[row].partition(" [")
                    cells.iloc[row, cells.columns.get_loc(name)] = rf"\textbf{{{mean}}}{bracket}{interval}"
        named = cells.reset_index()
        for name in self.text.index.names:
            named[name] = named[name].map(escape_latex)
        style = named.rename(columns=escape_latex).style.hide(axis="index")
        alignment = "l" * self.text.index.nlevels + "r" * len(cells.columns)
        notes = "".join(f"% {' '.join(note.split())}\n" for note in self.notes)
        return notes + str(style.to_latex(column_format=alignment, hrules=True))

    def terminal(self, study: str) -> TerminalTable:
        """Return the formatted cells for a terminal, below the name of the study and the caption."""
        shown = TerminalTable(title=Text(escape_control_characters(f"{study} · {self.title}")))
        cells = self.text.reset_index()
        for place, name in enumerate(cells.columns):
            side: Literal["left", "right"] = "left" if place < self.text.index.nlevels else "right"
            shown.add_column(Text(escape_control_characters(name)), justify=side, overflow="fold")
        for row in cells.itertuples(index=False):
            shown.add_row(*(Text(escape_control_characters(str(cell))) for cell in row))
        return shown


class TableColumns:
    """The columns of a table that is being built."""

    def __init__(self) -> None:
        self.text: dict[str, list[str]] = {}
        self.values: dict[str, list[float | None]] = {}
        self.signs: dict[str, int] = {}

    def add(
        self,
        name: str,
        estimates: Iterable[Estimate | None],
        *,
        digits: int,
        scale: float = 1,
        write: Callable[..., str] | None = None,
    ) -> None:
        """Add a column with a cell for each estimate, formatted by `write` or else `format_estimate`."""
        cells = [*estimates]
        self.text[name] = [(write or format_estimate)(cell, digits=digits, scale=scale) for cell in cells]
        shown = [cell if cell is not None and isfinite(cell.mean) else None for cell in cells]
        self.values[name] = [None if cell is None else scale * cell.mean for cell in shown]
        intervals = [cell.interval if cell else None for cell in shown]
        if any(intervals):
            for end, side in enumerate(("low", "high")):
                self.values[f"{name} {side}"] = [ends and scale * ends[end] for ends in intervals]

    def add_metric(
        self, metric: registry.Metric, estimates: Iterable[Estimate | None], suffix: str = "", **options: Any
    ) -> None:
        """Add a column with values of a metric in its unit; a suffix is appended to its heading."""
        name = metric.heading + suffix
        self.signs |= {name: metric.sign} if metric.direction and not suffix else {}
        self.add(name, estimates, digits=metric.digits, scale=metric.scale, **options)

    def table(
        self,
        name: str,
        title: str,
        labels: Mapping[str, Sequence[str]],
        notes: Sequence[str],
        csv_labels: Mapping[str, Sequence[str]] | None = None,
    ) -> Table:
        """Return the table; `labels` are the texts that name its rows, by heading."""
        text = pd.DataFrame({**labels, **self.text}).set_index([*labels])
        stored = {**(csv_labels or labels), **self.values}
        exact = {name: pd.Series(cells, dtype=object) for name, cells in stored.items()}  # whole numbers
        values = pd.DataFrame(exact).set_index([*labels])
        return Table(name, title, text, values, notes, self.signs)


def markdown(text: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """Return a GitHub-flavoured Markdown table of formatted cells, followed by the notes.

    The levels of the index are aligned to the left, and the columns to the right.
    """
    cells = text.reset_index()
    rows = [
        [escape_markdown(name) for name in cells.columns],
        ["---"] * text.index.nlevels + ["---:"] * len(text.columns),
        *([escape_markdown(cell) for cell in row] for row in cells.itertuples(index=False)),
    ]
    lines = (f"| {' | '.join(row)} |\n" for row in rows)
    return "".join([*lines, *(f"\n{escape_markdown(note)}\n" for note in notes)])


def escape_latex(text: str) -> str:
    """Escape a text so that LaTeX prints it literally, on one line."""
    return " ".join(text.split()).translate(LATEX)


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it literally, in one cell of a table."""
    return MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def format_estimate(result: Estimate | None, *, digits: int, scale: float = 1, missing: str = MISSING) -> str:
    """Format a mean and its interval as "12.3 [11.0, 13.5]"; no interval if it has no width.

    The number of values is appended, as "(2 of 3)", if others are missing.
    """
    if result is None or not isfinite(result.mean):
        return missing
    text = _number(result.mean, digits=digits, scale=scale)
    if result.interval is not None:
        low, high = (_number(end, digits=digits, scale=scale) for end in result.interval)
        text += f" [{low}, {high}]"
    return text if result.total is None else f"{text} ({result.count} of {result.total})"


def build_tables(study: Study, comparisons: Sequence[Comparison]) -> list[Table]:
    """Build the tables of a report: scores, costs and comparisons.

    Variants that were evaluated on different data are in tables of their own, except models that were trained
    on several data sets, which have a macro average.
    """
    averaged = {data for variants in study.models.values() for data in variants}
    together = [run for part in study.parts if part.data in averaged for run in part.runs]
    scores = [scores_table(replace(study, runs=together))] if averaged else []
    scores += [scores_table(part) for part in study.parts if part.data not in averaged]
    apart = kept_apart(study)
    scores[0] = replace(scores[0], notes=[*scores[0].notes, *apart])
    return [*scores, costs_table(study), comparisons_table(comparisons, study)]


def write_tables(tables: Iterable[Table], study: Study, folder: Path, columns: Sequence[str] = ()) -> None:
    """Write `results.csv` and `tables/` into a folder, with a note on the unfinished runs in each table.

    `columns` are those of LaTeX tables of scores; by default all of them.
    """
    write_atomically(folder / "results.csv", format_results(study))
    unfinished = Counter(run.status for run in study.unfinished)
    counts = ", ".join(f"{count} {status}" for status, count in unfinished.items())
    note = [f"Not included: {unfinished.total()} unfinished runs ({counts})."] if unfinished else []
    for each in tables:
        table = replace(each, notes=[*each.notes, *note])
        latex = table.latex([name for name in columns if name in table.text.columns])
        for suffix, text in (("csv", table.csv()), ("md", table.markdown()), ("tex", latex)):
            write_atomically(folder / "tables" / f"{table.name}.{suffix}", text)


def scores_table(study: Study) -> Table:
    """Build the table of final scores by variant, with the interval over sentences where counts exist.

    With several data sets, the variants of each are adjacent, and macro averages of models follow.
    """
    groups, notes = study.by_variant(), [INTERVALS]
    averages = {
        SEPARATOR.join(filter(None, [f"macro average of {len(variants)} data sets", model])): variants
        for model, variants in study.models.items()
    }
    columns = TableColumns()
    counts = [*(point(len(runs)) for runs in groups.values()), *(None for _ in averages)]
    columns.add("seeds", counts, digits=0, write=_or_empty)
    for metric in map(registry.metric, study.metrics):
        means = [_mean([run.score(metric.logged) for run in runs], metric.bounds) for runs in groups.values()]
        for variants in averages.values():
            means.append(_macro_average([groups[variant] for variant in variants.values()], metric))
        columns.add_metric(metric, means)
        over_sentences = [_over_sentences(runs, metric.logged) for runs in groups.values()]
        if any(over_sentences):
            notes = [INTERVALS, OVER_SENTENCES.format(noun=study.noun)]
            cells = [*over_sentences, *(None for _ in averages)]
            columns.add_metric(metric, cells, f" over {study.noun}", write=_interval_only)
    notes += [MACRO] * bool(averages) + undefined_scores(study) + mixed_tokenizers(study)
    labels = {"variant": [*groups, *averages]}
    if len(study.parts) > 1:
        data = [part.data for part in study.parts for _ in part.variants]
        labels = {"data": [*data, *("all" for _ in averages)], **labels}
    return columns.table(f"scores{study.suffix}", study.titled("Final scores"), labels, notes)


def costs_table(study: Study) -> Table:
    """Build the table of training cost by variant."""
    costs: dict[str, tuple[Callable[[RunRecord], float | None], float, int]] = {
        "parameters": (lambda run: run.parameters, 1, 0),
        "training time [min]": (lambda run: run.seconds, 1 / 60, 1),
        "time per step [ms]": (lambda run: run.seconds_per_step, 1000, 1),
        "peak memory [MiB]": (lambda run: run.peak_memory, 2**-20, 0),
        "throughput [tokens/s]": (lambda run: run.tokens_per_second, 1, 0),
    }  # the cost of a run, and the factor and the decimal places to display it with
    columns, groups = TableColumns(), study.by_variant()
    for name, (cost, scale, digits) in costs.items():
        means = [_mean([cost(run) for run in runs]) for runs in groups.values()]
        columns.add(name, means, digits=digits, scale=scale)
    return columns.table("costs", "Training cost", {"variant": [*groups]}, [INTERVALS])


def comparisons_table(comparisons: Sequence[Comparison], study: Study) -> Table:
    """Build the table of all comparisons; the tests over seeds and over sentences of a pair are adjacent."""
    pairs: dict[tuple[str, str, str], list[Comparison]] = {}
    for each in comparisons:
        pairs.setdefault((each.metric, each.variant, each.reference), []).append(each)
    ordered, noun = [each for pair in pairs.values() for each in pair], study.noun
    metrics = [registry.metric(each.metric) for each in ordered]
    labels = {
        "variant": [each.variant for each in ordered],
        "reference": [each.reference for each in ordered],
        "metric": [metric.heading for metric in metrics],
        "across": [{"sentences": noun, "data": "data sets"}.get(each.over, each.over) for each in ordered],
    }
    stored: dict[str, list[str]] = {
        "metric": [each.metric for each in ordered],
        "across": [each.over for each in ordered],
    }
    fields: dict[str, tuple[str, int | None, Callable[..., str]]] = {
        "seeds": ("seeds", 0, format_estimate),
        noun: ("sentences", 0, format_estimate),
        "data sets": ("data_sets", 0, format_estimate),
        "difference": ("difference", None, format_estimate),
        "95 % CI low": ("low", None, format_estimate),
        "95 % CI high": ("high", None, format_estimate),
        "effect size d_z": ("effect_size", 2, format_estimate),
        "p": ("p", 3, _p_value),
        "p (Holm)": ("p_corrected", 3, _p_value),
    }  # the attribute, and the decimal places; None: in the unit of the row's metric
    columns = TableColumns()
    if not study.models:
        del fields["data sets"]
    for name, (attribute, digits, write) in fields.items():
        scales = [metric.scale if digits is None else 1 for metric in metrics]
        cells = [point(getattr(each, attribute), n) for each, n in zip(ordered, scales, strict=True)]
        columns.values[name] = [None if cell is None else cell.mean for cell in cells]
        columns.text[name] = [
            write(cell, digits=metric.digits if digits is None else digits)
            for cell, metric in zip(cells, metrics, strict=True)
        ]
    size = max((each.family_size for each in ordered), default=0)
    notes = [
        "Differences are variant - reference with uncorrected 95 % intervals. Across seeds: paired t test; "
        f"the conclusion holds for other training runs. Across {noun}: paired bootstrap and approximate "
        "randomisation of the outputs of all seeds together; the conclusion holds for these networks and "
        f"other {noun}.",
        *([ACROSS_DATA] if study.models else []),
        *([f"p (Holm) is corrected for all {size} tests of this report."] if size else []),
    ]
    return columns.table("comparisons", "All comparisons", labels, notes, labels | stored)


def point(value: float | None, scale: float = 1) -> Estimate | None:
    """Return a number without an interval, multiplied by the scale."""
    return None if value is None or not isfinite(value) else Estimate(scale * value, None, None, 1)


def mean_and_range(values: Sequence[float], *, digits: int) -> str:
    """Format the mean, and the lowest and the highest value if they differ: "97.0 (95.1–98.6)"."""
    mean, low, high = (f"{value:.{digits}f}" for value in (fmean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low}–{high})"


def _macro_average(groups: Sequence[Sequence[RunRecord]], metric: registry.Metric) -> Estimate | None:
    """Return the mean over data sets: of each seed if all have the same ones, else of their means."""
    by_seed = [dict(scores_of(runs, metric.logged)) for runs in groups]
    if not all(by_seed):
        return None
    seeds = set.intersection(*(set(scores) for scores in by_seed))
    if len(seeds) > 1 and all(seeds == scores.keys() for scores in by_seed):
        return estimate([fmean(each[seed] for each in by_seed) for seed in sorted(seeds)], metric.bounds)
    return estimate([fmean(scores.values()) for scores in by_seed], metric.bounds)


def _over_sentences(runs: Sequence[RunRecord], metric: str) -> Estimate | None:
    """Return the mean over seeds of a variant with the bootstrap interval over sentences."""
    interval = interval_over_sentences(runs, metric)
    if interval is None:
        return None
    mean = fmean(score for _, score in scores_of(runs, metric))
    return Estimate(mean, *interval, len(runs))


def _mean(values: Sequence[float | None], bounds: Bounds = (0, inf)) -> Estimate | None:
    """Return the mean and interval of the values that are present, and their number if others are not."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    total = None if len(present) == len(values) else len(values)
    return replace(estimate(present, bounds), total=total)


def _number(value: float, *, digits: int, scale: float = 1) -> str:
    return f"{round(value * scale, digits) + 0:,.{digits}f}"  # + 0 turns -0.0 into 0.0


def _or_empty(result: Estimate | None, **options: Any) -> str:
    return format_estimate(result, missing="", **options)


def _interval_only(result: Estimate | None, **options: Any) -> str:
    """Format the interval of an estimate; the mean if the interval has no width."""
    text = _or_empty(result, **options)
    return text.partition(" ")[2] or text


def _p_value(p: Estimate | None, **options: Any) -> str:
    return "< 0.001" if p is not None and p.mean < 0.001 else format_estimate(p, **options)
