"""Speed of a configuration, against the plain loop: time, operations, share of the peak, memory, kernels.

    python bench.py experiment=conala data.path=conala-train.json --against plain
    python bench.py experiment=reverse_published --lengths 10 10 --vocabulary 100

`attnlab bench` times the steps of training alone.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median

import timing
from lightning import seed_everything
from rich.console import Console
from rich.table import Table
from timing import Row

from attnlab.config.compose import compose_run
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components
from attnlab.training.environment import environment
from attnlab.types import Batch


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", metavar="OVERRIDE", nargs="*", help="settings of attnlab train")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds over the batches")
    parser.add_argument("--batches", type=int, default=10, help="batches per round")
    parser.add_argument(
        "--lengths",
        type=int,
        nargs=2,
        metavar=("S", "T"),
        help="random sentences of these source and target lengths instead of the configured data",
    )
    parser.add_argument("--vocabulary", type=int, default=8004, help="vocabulary of random sentences")
    parser.add_argument("--against", choices=("plain",), help="also time the loop over single decoder steps")
    parser.add_argument("--no-search", action="store_true", help="time training only")
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    config = compose_run(options.overrides)
    settings = timing.Settings.of(config)
    seed_everything(config.seed, verbose=False)
    if options.lengths:
        corpus, vocabularies = timing.random_corpus(
            *options.lengths, options.vocabulary, options.batches, config
        )
    else:
        corpus = build.build_corpus(config)
        vocabularies = build.build_vocabularies(config, corpus)
    batches = timing.take_batches(config, corpus, vocabularies, options.batches, settings.device)
    network = build.build_network(config, vocabularies).to(settings.device)
    module = components.build_module(config, network, vocabularies, corpus)
    losses = {"train": timing.fast_loss} | ({"train, plain": timing.plain_loss} if options.against else {})
    rows = timing.measure_training(module, losses, batches, settings, options.rounds)
    if not options.no_search:
        rows += timing.measure_search(module, batches, settings, options.rounds)

    title = f"{config.name} · {config.variant} · {settings}"
    Console(soft_wrap=True).print(measurements_table(rows, title))
    print(describe(batches))
    if options.json:
        measurements = {
            "command": sys.argv,
            "settings": {**asdict(settings), "device": str(settings.device)},
            "batches": [timing.sizes_of(batch)._asdict() for batch in batches],
            "rows": [asdict(row) for row in rows],
            **environment(),
        }
        options.json.write_text(json.dumps(measurements, indent=2))


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


def describe(batches: Sequence[Batch]) -> str:
    """Return the sizes of the batches and their share of padding."""
    sizes = [timing.sizes_of(batch) for batch in batches]
    real = sum(size.tokens for size in sizes) / sum(size.padded for size in sizes)
    longest = (max(size.source for size in sizes), max(size.target for size in sizes))
    return (
        f"{len(batches)} batches of {fmean(size.sentences for size in sizes):.1f} sentences, "
        f"S ≤ {longest[0]}, T ≤ {longest[1]}, {real:.0%} of the positions are tokens, the rest padding"
    )


if __name__ == "__main__":
    main()
