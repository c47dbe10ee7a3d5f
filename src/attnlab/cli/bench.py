"""`attnlab bench`: measure the speed of training and decoding, relative to the peak of the machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

from rich.table import Table

from attnlab.cli import arguments
from attnlab.files.terminal import print_line, print_table
from attnlab.files.writing import check_writable, write_json

if TYPE_CHECKING:
    from attnlab.training.benchmark.timing import Loss, Row
    from attnlab.types import Batch

IMPORTS = ("attnlab.training.benchmark.timing",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides", metavar="OVERRIDE", nargs="*", help="settings, as for attnlab train: attention=dot"
    )
    parser.add_argument(
        "--rounds", type=arguments.positive, default=5, help="timed rounds over the batches (default: 5)"
    )
    parser.add_argument(
        "--batches", type=arguments.positive, default=10, help="batches per round (default: 10)"
    )
    parser.add_argument(
        "--lengths",
        type=arguments.positive,
        nargs=2,
        metavar=("S", "T"),
        help="random sentences of these source and target lengths instead of the configured data",
    )
    parser.add_argument(
        "--vocabulary",
        type=arguments.positive,
        default=8004,
        metavar="V",
        help="vocabulary size of random sentences (default: 8004)",
    )
    parser.add_argument(
        "--against", choices=("plain",), help="also time the plain loop over single decoder steps"
    )
    parser.add_argument("--no-search", action="store_true", help="time training only")
    parser.add_argument("--json", metavar="FILE", help="write all measurements to this file")


def main(options: argparse.Namespace) -> int:
    from lightning import seed_everything

    from attnlab.config.compose import compose_run, usage_errors
    from attnlab.jobs.logs import quieten_lightning
    from attnlab.jobs.worker_process import import_from_current_folder
    from attnlab.training import build, components
    from attnlab.training.benchmark import timing
    from attnlab.training.environment import environment

    quieten_lightning()
    import_from_current_folder()
    if options.json:
        check_writable(Path(options.json))
    with usage_errors():
        config = compose_run(options.overrides)
    settings = timing.Settings.of(config)
    seed_everything(config.seed, verbose=False)
    if options.lengths:
        source, target = options.lengths
        corpus, vocabularies = timing.random_corpus(
            source, target, options.vocabulary, options.batches, config
        )
    else:
        corpus = build.build_corpus(config)
        vocabularies = build.build_vocabularies(config, corpus)
    batches = timing.take_batches(config, corpus, vocabularies, options.batches, settings.device)
    network = build.build_network(config, vocabularies).to(settings.device)
    module = components.build_module(config, network, vocabularies, corpus)

    losses: dict[str, Loss] = {"train": timing.fast_loss}
    if options.against:
        losses[f"train, {options.against}"] = timing.plain_loss
    rows = timing.measure_training(module, losses, batches, settings, options.rounds)
    if not options.no_search:
        rows += timing.measure_search(module, batches, settings, options.rounds)

    print_table(measurements_table(rows, title=f"{config.name} · {config.variant} · {settings}"))
    print_line(_shape(batches))
    if options.json:
        measurements = {
            "command": ["attnlab", "bench", *options.arguments],
            "settings": {**asdict(settings), "device": str(settings.device)},
            "batches": [timing.sizes_of(batch)._asdict() for batch in batches],
            "rows": [asdict(row) for row in rows],
            **environment(),
        }
        write_json(Path(options.json), measurements)
    return 0


def measurements_table(rows: Sequence[Row], title: str) -> Table:
    """Build a table with one row for each kind of work."""
    columns: dict[str, Callable[[Row], str]] = {
        "median ms": lambda row: f"{1e3 * median(row.seconds):.2f}",
        "best ms": lambda row: f"{1e3 * min(row.seconds):.2f}",
        "tokens/s": lambda row: f"{row.tokens / median(row.seconds):,.0f}" if row.tokens else "–",
        "GFLOP": lambda row: "–" if row.flops is None else f"{row.flops / 1e9:.2f}",
        "GFLOP/s": lambda row: "–" if row.flops is None else f"{row.flops / median(row.seconds) / 1e9:.0f}",
        "of peak": lambda row: "–" if row.utilisation is None else f"{row.utilisation:.1%}",
        "memory MB": lambda row: "–" if row.peak_memory is None else f"{row.peak_memory / 1e6:.1f}",
        "kernels": lambda row: "–" if row.launches is None else f"{row.launches}",
        "kernels per step": lambda row: (
            "–" if row.launches is None else f"{row.launches_per_target_step:.1f}"
        ),
    }
    if all(row.launches is None for row in rows):
        del columns["kernels"], columns["kernels per step"]
    table = Table("per batch", title=title)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.work, *(cell(row) for cell in columns.values()))
    return table


def _shape(batches: Sequence[Batch]) -> str:
    from attnlab.training.benchmark.timing import sizes_of

    sizes = [sizes_of(batch) for batch in batches]
    real = sum(size.tokens for size in sizes) / sum(size.padded for size in sizes)
    longest = (max(size.source for size in sizes), max(size.target for size in sizes))
    return (
        f"{len(batches)} batches of {fmean(size.sentences for size in sizes):.1f} sentences, "
        f"S ≤ {longest[0]}, T ≤ {longest[1]}, {real:.0%} of the positions are tokens, the rest padding"
    )
