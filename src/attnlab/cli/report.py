"""`attnlab report`: compare runs: a page with statistics, tables and figures."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from attnlab.errors import UsageError, UserError
from attnlab.files.terminal import print_line, print_table
from attnlab.files.writing import check_writable

if TYPE_CHECKING:
    from attnlab.report.comparison import Comparison
    from attnlab.report.study import Study
    from attnlab.report.tables import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="a run directory, or a folder that contains run directories",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        type=Path,
        help="the page; figures/, tables/ and results.csv are written into the folder FILE_files next to it "
        "(default: report.html in the first PATH)",
    )
    parser.add_argument(
        "--metric",
        action="extend",
        nargs="+",
        default=[],
        metavar="METRIC",
        help="metrics to compare, such as test/exact_match; the first one orders the variants (default: "
        "CoNaLa BLEU, BLEU, chrF and exact match, those that the runs have)",
    )
    parser.add_argument(
        "--reference",
        metavar="VARIANT",
        help="compare the other variants with this one (default: the variant none; without it, or with "
        "several of that name, every pair)",
    )
    parser.add_argument("--all-pairs", action="store_true", help="compare every pair of variants")


def main(options: argparse.Namespace) -> int:
    from attnlab.report.collect import collect
    from attnlab.report.comparison import compare
    from attnlab.report.errors import error_tables, errors_of_words
    from attnlab.report.figures import draw_figures, styles_of, write_figures
    from attnlab.report.page import write_page
    from attnlab.report.tables import build_tables, write_tables

    output = options.output or options.paths[0] / "report.html"
    if output.suffix != ".html":
        raise UsageError(f"-o {output}: the name must end in .html")
    folder = output.with_name(f"{output.stem}_files")
    with Console(stderr=True).status("reading runs"):
        study = collect(options.paths)
    _require_finished(study)
    study = replace(study, selected_metrics=_requested(study, options.metric))
    for path in (output, folder / "results.csv"):
        check_writable(path)
    with Console(stderr=True).status("comparing variants and drawing figures"):
        comparisons = compare(study, reference=options.reference, all_pairs=options.all_pairs)
        tables, errors = build_tables(study, comparisons), error_tables(errors_of_words(study))
        write_tables([*tables, *errors], study, folder)
        styles = styles_of(study)
        figures = draw_figures(study, styles)
        write_page(study, comparisons, tables, figures, output, errors)
        write_figures(figures, styles, folder / "figures")
    _print(study, tables, comparisons)
    print_line(f"page     {output}")
    for name, path in (("figures", "figures"), ("tables", "tables"), ("runs", "results.csv")):
        print_line(f"{name:<8} {folder / path}")
    return 0


def _require_finished(study: Study) -> None:
    if not study.finished:
        counts = Counter(run.status for run in study.unfinished)
        first = min(study.unfinished, key=lambda run: run.status not in ("failed", "broken"))
        raise UserError(
            f"No run is finished ({', '.join(f'{count} {status}' for status, count in counts.items())}). "
            f"{first.directory}: {first.error}"
        )


def _requested(study: Study, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the requested metrics, each once; raise `UsageError` if no finished run has one of them."""
    available = sorted({name for run in study.finished for name in run.scores})
    for metric in metrics:
        if metric not in available:
            raise UsageError(f"No finished run has the metric {metric!r}: choose from {', '.join(available)}")
    return tuple(dict.fromkeys(metrics))


def _print(study: Study, tables: Sequence[Table], comparisons: Sequence[Comparison]) -> None:
    """Print the unfinished runs, the main tables and the comparisons."""
    from attnlab.report.comparison import by_question
    from attnlab.report.study import unfinished_lines

    for variant, seeds, reason in unfinished_lines(study):
        print_line(f"not included: {variant} {seeds}, {reason}", style="yellow")
    for table in (each for each in tables if each.name.startswith(("scores", "costs"))):
        print_table(table.terminal(study.name))
    for note in tables[0].notes:
        print_line(note, style="dim")
    for question, answers in by_question(comparisons).items():
        print_line(question, style="bold")
        for comparison in answers:
            print_line(f"• {comparison.summary}")
