"""`attnlab bench`: measure the speed of training and decoding, relative to the peak of the machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from attnlab.cli import arguments
from attnlab.errors import UserError
from attnlab.files.terminal import print_line, print_table
from attnlab.files.writing import check_writable, write_json

if TYPE_CHECKING:
    from attnlab.training.benchmark.gpu_report import Difference
    from attnlab.training.benchmark.timing import Loss, Row
    from attnlab.types import Batch

IMPORTS = ("attnlab.training.benchmark.gpu_report",)


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
    parser.add_argument(
        "--gpu-report",
        action="store_true",
        help="measure a GPU: equality with the CPU, training and search at the sizes of GNMT with fused "
        "loops, the published loop and torch's LSTMs, small networks, two processes; only OVERRIDE, --rounds,"
        " --batches, --lengths, --vocabulary and --json apply",
    )
    parser.add_argument("--json", metavar="FILE", help="write all measurements to this file")


def main(options: argparse.Namespace) -> int:
    from attnlab.jobs.logs import quieten_lightning
    from attnlab.jobs.worker_process import import_from_current_folder

    quieten_lightning()
    import_from_current_folder()
    if options.json:
        check_writable(Path(options.json))
    return _gpu_report(options) if options.gpu_report else _report(options)


def _report(options: argparse.Namespace) -> int:
    """Measure the configured system; returns the exit code."""
    from lightning import seed_everything

    from attnlab.config import build
    from attnlab.config.compose import compose_run, usage_errors
    from attnlab.training import components
    from attnlab.training.benchmark import timing
    from attnlab.training.environment import environment

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

    print_table(_table(rows, title=f"{config.name} · {config.variant} · {settings}"))
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


def _gpu_report(options: argparse.Namespace) -> int:
    """Measure all systems of the report on a GPU; returns the exit code."""
    import torch

    from attnlab.config.compose import compose_run
    from attnlab.training.benchmark import gpu_report
    from attnlab.training.environment import environment

    if not torch.cuda.is_available():
        raise UserError("--gpu-report: torch finds no CUDA device on this machine. Run it on one with a GPU")
    card = torch.cuda.get_device_name()
    report: dict[str, Any] = {"command": ["attnlab", "bench", *options.arguments], **environment()}

    def save(section: str, measured: object) -> None:  # an interrupted report keeps what it has
        report[section] = measured
        if options.json:
            write_json(Path(options.json), report)

    differences = {
        setting: gpu_report.compare_with_cpu(
            compose_run([setting, "trainer.precision=32-true", "batching.batch_size=7"]), torch.device("cuda")
        )
        for setting in gpu_report.parity_settings()
    }
    print_table(_parity(differences, title=f"{card} in fp32 against the CPU"))
    save("parity", {setting: found._asdict() for setting, found in differences.items()})
    lengths = tuple(options.lengths or (32, 32))
    sizes = {"lengths": lengths, "vocabulary": options.vocabulary, "rounds": options.rounds}
    small = {**sizes, "lengths": (10, 10), "vocabulary": 24, "batches": options.batches}
    rows = gpu_report.measure_system(
        compose_run(["trainer.precision=32-true", "search.max_length=12"]), **small
    )
    print_table(_table(rows, title=f"the default system in fp32 · {card}"))
    save("small", [asdict(row) for row in rows])
    config = compose_run(["trainer.precision=32-true"])
    processes = {count: gpu_report.measure_processes(config, count, **small) for count in (1, 2)}
    for count, found in processes.items():
        print_line(f"{count} processes train the default system: {sum(found):,.0f} tokens/s together")
    save("processes", processes)
    systems = {}
    for size, name in product(gpu_report.BATCH_SIZES, gpu_report.SYSTEMS):
        settings = [
            *gpu_report.SYSTEMS[name],
            f"batching.batch_size={size}",
            f"search.max_length={lengths[1]}",
        ]
        title = f"{name}, batches of {size}"
        try:
            rows = gpu_report.measure_system(
                compose_run([*settings, *options.overrides]),
                batches=options.batches,
                published=size == min(gpu_report.BATCH_SIZES),
                **sizes,
            )
        except torch.OutOfMemoryError:
            print_line(f"{title}: {card} has not enough memory")
            continue
        systems[title] = [asdict(row) for row in rows]
        print_table(_table(rows, title=f"{title} · {card}"))
        save("systems", systems)
    return 0


def _parity(differences: Mapping[str, Difference], title: str) -> Table:
    table = Table("setting", title=title)
    for name in ("loss", "gradient"):
        table.add_column(f"difference of the {name}", justify="right")
    table.add_column("equal outputs")
    for setting, (loss, gradient, greedy, beam) in differences.items():
        equal = [name for name, same in (("greedy", greedy), ("beam", beam)) if same]
        difference = "draws noise" if gradient is None else f"{gradient:.1e}"
        table.add_row(setting, f"{loss:.1e}", difference, " and ".join(equal) or "none")
    return table


def _table(rows: Sequence[Row], title: str) -> Table:
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
