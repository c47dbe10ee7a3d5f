"""`attnlab report`: compare runs: a page with statistics, tables and figures."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import track

from attnlab.errors import UsageError, UserError, needs
from attnlab.files.terminal import print_line, print_table
from attnlab.files.writing import check_writable
from attnlab.metrics import registry

if TYPE_CHECKING:
    from attnlab.report.comparison import Comparison, Task
    from attnlab.report.record import RunRecord
    from attnlab.report.study import Study
    from attnlab.report.tables import Table

WRITTEN = (".csv", ".md", ".pdf", ".svg", ".tex")  # Suffixes of the files of a report, of which old ones go


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
    parser.add_argument(
        "--wandb",
        action="store_true",
        help="create a Weights & Biases dashboard of online runs, and link to it",
    )
    parser.add_argument(
        "--entity", metavar="NAME", help="user or team of the dashboard (default: that of your login)"
    )
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="NAME",
        help="columns of the LaTeX tables of scores, such as seeds BLEU (default: all)",
    )
    parser.add_argument("--all-pairs", action="store_true", help="compare every pair of variants")


def main(options: argparse.Namespace) -> int:
    from attnlab.report.collect import collect
    from attnlab.report.comparison import compare
    from attnlab.report.errors import error_figures, error_tables, errors_of_words, write_errors
    from attnlab.report.figures import draw_figures, styles_of, write_figures
    from attnlab.report.page import write_page
    from attnlab.report.study_tables import build_tables, write_tables

    output = options.output or options.paths[0] / "report.html"
    if output.suffix != ".html":
        raise UsageError(f"-o {output}: the name must end in .html")
    folder = output.with_name(f"{output.stem}_files")
    with Console(stderr=True).status("reading runs") as status:
        study = collect(
            options.paths, lambda position, total: status.update(f"reading run {position} of {total}")
        )
    if options.entity and not options.wandb:
        raise UsageError("--entity is the owner of a dashboard: add --wandb")
    if options.wandb and not study.finished:
        _publish(study, [], options.entity)
        return 0
    _require_finished(study)
    study = replace(study, selected_metrics=_requested(study, options.metric))
    for path in (output, folder / "results.csv"):
        check_writable(path)
    comparisons = compare(
        study, reference=options.reference, all_pairs=options.all_pairs, progress=_with_progress_bar
    )
    dashboards = _publish(study, comparisons, options.entity) if options.wandb else []
    with Console(stderr=True).status("drawing figures"):
        words = errors_of_words(study)
        tables, errors = build_tables(study, comparisons), error_tables(words)
        for earlier in folder.glob("*/*"):
            if earlier.parent.name in ("errors", "figures", "tables") and earlier.suffix in WRITTEN:
                earlier.unlink()
        write_errors(words, folder / "errors")
        write_tables([*tables, *errors], study, folder, _columns(tables, options.columns))
        styles = styles_of(study)
        figures = draw_figures(study, styles)
        for part in study.parts:
            of_part = {variant: words[variant] for variant in part.variants if variant in words}
            figures += error_figures(of_part, styles, part)
        write_page(study, comparisons, tables, figures, output, dashboards, errors)
        write_figures(figures, styles, folder / "figures")
    _print(study, tables, comparisons)
    print_line(f"page     {output}")
    for name, path in (("figures", "figures"), ("tables", "tables"), ("runs", "results.csv")):
        print_line(f"{name:<8} {folder / path}")
    return 0


def _publish(study: Study, comparisons: Sequence[Comparison], entity: str | None) -> list[str]:
    """Create a Weights & Biases dashboard of each study; print and return their addresses."""
    with needs("dashboard", "A dashboard needs wandb and wandb_workspaces"):
        from attnlab.report import workspace
    from attnlab.report.study_tables import comparisons_table
    from attnlab.report.variants import group_by_variant

    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in study.runs:
        project = run.config.get("logger", {}).get("wandb", {}).get("project", "attnlab")
        groups.setdefault((run.study, project), []).append(run)
    addresses = []
    for (name, project), runs in sorted(groups.items()):
        variants = group_by_variant(runs)
        shown = [each for each in comparisons if each.over == "seeds" and each.variant in variants]
        shown.sort(key=lambda each: -abs(each.difference or 0) * registry.metric(each.metric).scale)
        shown.sort(key=lambda each: study.metrics.index(each.metric))
        references = {each.reference for each in shown}
        reference = [*variants.get(references.pop(), [])] if len(references) == 1 else []
        address = workspace.publish_workspace(
            name,
            project=project,
            entity=entity,
            scores=[score for run in runs for score in run.scores],
            compared=study.metrics,
            differences=comparisons_table(shown, study).markdown() if shown else "",
            reference=[run.directory.name.rpartition("-")[2] for run in reference],
        )
        print_line(f"dashboard  {address}")
        addresses.append(address)
    return addresses


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


def _columns(tables: Sequence[Table], names: Sequence[str]) -> list[str]:
    """Return the columns of the tables of scores with these names, with or without their unit."""
    scores = (table for table in tables if table.name.startswith("scores"))
    columns = dict.fromkeys(column for table in scores for column in table.text.columns)
    chosen = {column.partition(" [")[0]: column for column in reversed(columns)} | {
        each: each for each in columns
    }
    for name in names:
        if name not in chosen:
            raise UsageError(f"--columns {name}: choose from {', '.join(columns)}")
    return [*dict.fromkeys(chosen[name] for name in names)]


def _with_progress_bar(tasks: Sequence[Task]) -> Iterable[Task]:
    """Iterate over the tasks with a progress bar, if standard error is a terminal."""
    console = Console(stderr=True)
    return track(tasks, "comparing", console=console, transient=True, disable=not console.is_terminal)


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
