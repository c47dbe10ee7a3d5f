"""`attnlab evaluate`: evaluate a trained run, or an ensemble, on other data or with another search."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Column, Table

from attnlab.cli import arguments
from attnlab.files.terminal import print_line, print_table
from attnlab.metrics import registry

if TYPE_CHECKING:
    from attnlab.api.evaluation import Evaluation, Metrics
    from attnlab.explain.scorecard import Score
    from attnlab.metrics.errors import Errors

IMPORTS = ("attnlab.api.evaluation", "attnlab.jobs.logs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_runs_and_overrides(parser, "settings to change: data.path=FILE search.beam_size=5")
    parser.add_argument(
        "--split", choices=("val", "test"), help="default: test, or val if the corpus has no test split"
    )
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    from attnlab.api.evaluation import evaluate
    from attnlab.fast import machine

    machine.use_faster_threads()
    runs, overrides = arguments.split_overrides(options, "evaluate")
    for evaluation in evaluate(runs, overrides, split=options.split, trust=options.trust):
        _print(evaluation)
    return 0


def _print(evaluation: Evaluation) -> None:
    result = evaluation.result
    decoded, total = result["sentences"], evaluation.total_sentences
    inputs = f"{decoded}" if decoded == total else f"{decoded} of {total}"
    changed = {name: each["metrics"] for name, each in result.get("attention_override", {}).items()}
    if evaluation.by_length:
        print_table(_metrics_table(result["metrics"], changed, title=f"{evaluation.split} · {inputs} inputs"))
        scores = [((row.span, str(row.sentences)), row.scores) for row in evaluation.by_length]
        print_table(_scores_table(("source length", "inputs"), scores, "by source length, in tokens"))
    else:
        print_line(f"{evaluation.split} has no targets: {inputs} outputs, no scores")
    if evaluation.explanations:
        print_table(_explanations_table(evaluation.explanations, evaluation.split))
    for metric, signature in result["signatures"].items():
        print_line(f"{registry.metric(metric).label}  {signature}")
    for metric, reason in result["undefined"].items():
        print_line(f"{registry.metric(metric).title} is undefined: {reason}")
    if result["references"] == "normalised":
        print_line("references: as normalised by the target tokenizer, not the raw text")
    if seen := result["seen_in_training"]:
        print_line(f"{seen} of these sources were in the training split", style="red")
    if parts := result["known_and_unknown"]:
        known = [((part,), values) for part, values in parts.items()]
        print_table(_scores_table(("sources",), known, "known: in the training split"))
    if evaluation.of_words and evaluation.errors is not None and len(evaluation.errors.wrong):
        _print_errors(evaluation.errors, evaluation.split, decoded)
    print_line(f"results, figures and predictions  {evaluation.folder}")


def _metrics_table(metrics: Metrics, changed: Mapping[str, Metrics], title: str) -> Table:
    """Build a table with one row per metric; with interventions also their values and changes."""
    title += " · below each value: its difference from the unchanged network" if changed else ""
    columns = [Column(name, overflow="fold") for name in ("score", "value", *changed)]
    table = Table(*columns, title=title, show_lines=bool(changed))
    for name, value in metrics.items():
        metric = registry.metric(name)
        cells = [
            f"{metric.number(others[name])}\n{metric.number(value - others[name], '+')}"
            if name in others
            else "–"
            for others in changed.values()  # zero weights have no attention metrics
        ]
        table.add_row(metric.label_with_unit, metric.number(value), *cells)
    return table


def _scores_table(
    heads: Sequence[str], parts: Sequence[tuple[Sequence[str], Mapping[str, float | None]]], title: str
) -> Table:
    """Build a table with one row of scores per part; the eight metrics of CoNaLa fit into 80 columns."""
    metrics = {name: registry.metric(name) for _, scores in parts for name in scores}
    heads = (*heads, *(metric.label_with_unit for metric in metrics.values()))
    table = Table(
        *(Column(head, overflow="fold", justify="right") for head in heads), title=title, pad_edge=False
    )
    for labels, scores in parts:
        numbers = ((metric, scores.get(name)) for name, metric in metrics.items())
        table.add_row(*labels, *("–" if score is None else metric.number(score) for metric, score in numbers))
    return table


def _print_errors(errors: Errors, split: str, outputs: int) -> None:
    """Print the most frequent confusions, the most confident wrong outputs, and the calibration."""
    from attnlab.report.errors import error_tables

    for table in error_tables({"": errors}):
        print_table(table.terminal(split))
    if errors.calibration.empty:
        return
    surest, wrong = errors.calibration.iloc[-1], len(errors.wrong)
    right = round(surest.outputs * surest.accuracy)
    print_line(
        f"of the {surest.outputs:.0f} most confident outputs, with a mean confidence of "
        f"{surest.confidence:.2f}, {right} are right"
    )
    if outputs < 10 or not wrong:
        return
    print_line(
        f"checking the {outputs // 10} least confident outputs finds {round(wrong * errors.found_in(0.1))} "
        f"of {wrong} errors"
    )


def _explanations_table(scores: dict[str, Score], split: str) -> Table:
    columns = [Column("attention weights as explanations", overflow="fold")]
    columns += [Column(name, justify="right") for name in ("value", "95 % interval", "units")]
    result = Table(*columns, title=f"{split} · intervals by bootstrap over inputs")
    for name, score in scores.items():
        metric = registry.metric(f"test/explanation/{name}")
        low, high = ("–" if end is None else metric.number(end) for end in (score.low, score.high))
        interval = f"[{low}, {high}]"
        result.add_row(metric.heading, metric.number(score.value), interval, f"{score.units:,}")
    return result
