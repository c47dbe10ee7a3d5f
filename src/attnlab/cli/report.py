"""`attnlab report`: compare runs on one page, in figures, tables and the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace

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


def main(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    output = options.output or options.paths[0] / "report.html"
    if output.suffix != ".html":
        raise UserError(f"-o {output}: the name must end in .html")
    study = collect(options.paths)
    if options.wandb:
        return _publish(study)
    study = replace(study, selected_metrics=_requested(study, options.metric))
    comparisons = compare(
        study, reference=options.reference, all_pairs=options.all_pairs, progress=_with_progress_bar
    )
    built = tables.build(study, comparisons)
    tables.write(built, study, output.parent)
    looks = variant_styles(study.variants)
    drawings = figures.draw(study, looks)
    page.write(study, comparisons, built, drawings, output)
    figures.write(drawings, looks, output.parent / "figures")
    _print(study, built, comparisons)
    Console(soft_wrap=True).print(
        f"page     {output}\nfigures  {output.parent / 'figures'}\ntables   {output.parent / 'tables'}\n"
        f"runs     {output.parent / 'results.csv'}",
        highlight=False,
        markup=False,
    )
    return 0


def _publish(study: Study) -> int:
    """Create a Weights & Biases dashboard of each study, and print its address."""
    try:
        from attnlab.report import workspace
    except ImportError as error:
        raise UserError(f"A dashboard needs {error.name}: pip install 'attnlab[dashboard]'") from None
    projects = {
        (run.study, run.config.get("logger", {}).get("wandb", {}).get("project", "attnlab"))
        for run in study.runs
    }
    for name, project in sorted(projects):
        print(f"dashboard  {workspace.publish(name, project=project)}")
    return 0


def _requested(study: Study, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the requested metrics, each once.

    Raises:
        UserError: if no finished run has one of them.
    """
    available = sorted({name for run in study.finished for name in run.scores})
    for metric in metrics:
        if metric not in available:
            raise UserError(f"No finished run has the metric {metric!r}: choose from {', '.join(available)}")
    return tuple(dict.fromkeys(metrics))


def _with_progress_bar(tasks: Sequence[Task]) -> Iterable[Task]:
    """Iterate over the tasks with a progress bar, if standard error is a terminal."""
    console = Console(stderr=True)
    return track(tasks, "comparing", console=console, transient=True, disable=not console.is_terminal)


def _print(study: Study, built: Sequence[tables.Table], comparisons: Sequence[Comparison]) -> None:
    """Print the main tables, the comparisons and the unfinished runs."""
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
        line = f"not finished: {run.variant} seed {run.seed}, {run.status}: {run.error} ({run.directory})"
        console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
