"""`attnlab report PATH...`: what may be said of the runs under the paths, as a page, and in parts."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table as TerminalTable

from attnlab.analysis.collect import collect
from attnlab.analysis.comparison import Comparison, Task, compare
from attnlab.analysis.study import Study
from attnlab.errors import UserError
from attnlab.plotting.style import variant_styles
from attnlab.report import figures, page, tables


def main(words: list[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_intermixed_args(words)
    output = options.output or options.paths[0] / "report.html"
    if output.suffix != ".html":
        raise UserError(f"-o {output}: end the name in .html")
    study = collect(options.paths)
    if options.wandb:
        return _publish(study)
    study = replace(study, selected_metrics=_asked(study, options.metric))
    comparisons = compare(
        study, reference=options.reference, all_pairs=options.all_pairs, progress=_with_a_bar
    )
    built = tables.build(study, comparisons)
    tables.write(built, study, output.parent)
    looks = variant_styles(study.variants)
    drawings = figures.draw(study, looks)
    page.write(study, comparisons, built, drawings, output)
    figures.write(drawings, looks, output.parent / "figures")
    _tell(study, built, comparisons)
    Console(soft_wrap=True).print(
        f"page     {output}\nfigures  {output.parent / 'figures'}\ntables   {output.parent / 'tables'}\n"
        f"runs     {output.parent / 'results.csv'}",
        highlight=False,
        markup=False,
    )
    return 0


def _publish(study: Study) -> int:
    """Make a dashboard of each study in Weights & Biases, and say where it is."""
    try:
        from attnlab.report import workspace
    except ImportError as error:
        raise UserError(f"a dashboard needs {error.name}: pip install 'attnlab[dashboard]'") from None
    told = {
        (run.study, run.config.get("logger", {}).get("wandb", {}).get("project", "attnlab"))
        for run in study.runs
    }
    for name, project in sorted(told):
        print(f"dashboard  {workspace.publish(name, project=project)}")
    return 0


def _asked(study: Study, metrics: Sequence[str]) -> tuple[str, ...]:
    """The metrics asked for, each once.

    Raises:
        UserError: if no finished run has a metric asked for.
    """
    known = sorted({name for run in study.finished for name in run.scores})
    for metric in metrics:
        if metric not in known:
            raise UserError(f"no finished run has the metric {metric!r}: choose from {', '.join(known)}")
    return tuple(dict.fromkeys(metrics))


def _with_a_bar(tasks: Sequence[Task]) -> Iterable[Task]:
    """Go through the tasks behind a progress bar, where somebody looks."""
    console = Console(stderr=True)
    return track(tasks, "comparing", console=console, transient=True, disable=not console.is_terminal)


def _tell(study: Study, built: Sequence[tables.Table], comparisons: Sequence[Comparison]) -> None:
    """Say it in the terminal."""
    console = Console()
    for table in built[:2]:
        shown = TerminalTable(title=escape(f"{study.name} · {table.title}"))
        for column in table.columns:
            shown.add_column(
                escape(column.name), justify="right" if column.numeric else "left", overflow="fold"
            )
        for row in table.rows:
            shown.add_row(*(escape(cell.text) for cell in row))
        console.print(shown)
    console.print(tables.INTERVALS, style="dim")
    for comparison in comparisons:
        console.print(f"• {comparison.summary}", highlight=False, markup=False)
    for run in study.unfinished:
        told = f"not finished: {run.variant} seed {run.seed}, {run.status}: {run.error} ({run.directory})"
        console.print(told, style="yellow", highlight=False, markup=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnlab report", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", type=Path, help="a run directory, or a folder that holds some"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        type=Path,
        help="the page; figures/, tables/, results.csv go beside it. Default: report.html in the first PATH",
    )
    parser.add_argument(
        "--metric",
        action="extend",
        nargs="+",
        default=[],
        metavar="METRIC",
        help="what to compare by, such as test/exact_match; the first orders the variants. Default: those of "
        "CoNaLa BLEU, BLEU, chrF and exact match that runs have",
    )
    parser.add_argument(
        "--reference",
        metavar="VARIANT",
        help="compare the others with it. Default: none; without such a variant, or with several, every pair",
    )
    parser.add_argument(
        "--wandb", action="store_true", help="make a dashboard in Weights & Biases instead, for those online"
    )
    parser.add_argument("--all-pairs", action="store_true", help="compare every variant with every other")
    return parser
