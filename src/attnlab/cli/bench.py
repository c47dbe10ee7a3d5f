"""`attnlab bench`: time training steps and decoding on this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from attnlab.cli import arguments
from attnlab.files.terminal import print_table
from attnlab.files.writing import check_writable, write_json

if TYPE_CHECKING:
    from attnlab.data.datamodule import Seq2SeqData
    from attnlab.training.module import Seq2SeqModule

IMPORTS = ("attnlab.training.components",)

Timings = list[tuple[float, int]]
"""Seconds of each batch, and its tokens: of the sources and the targets, or of the outputs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides", metavar="OVERRIDE", nargs="*", help="settings, as for attnlab train: attention=dot"
    )
    parser.add_argument(
        "--against",
        metavar="OVERRIDE",
        nargs="+",
        help="also time this configuration, such as fused=false, in alternation",
    )
    parser.add_argument(
        "--rounds", type=arguments.positive, default=5, help="timed rounds over the batches (default: 5)"
    )
    parser.add_argument(
        "--batches", type=arguments.positive, default=10, help="batches per round (default: 10)"
    )
    parser.add_argument("--no-search", action="store_true", help="time training only")
    parser.add_argument("--json", metavar="FILE", help="write all measurements to this file")


def main(options: argparse.Namespace) -> int:
    from attnlab.api.objects import build
    from attnlab.jobs.worker_process import import_from_current_folder
    from attnlab.training.environment import environment

    import_from_current_folder()
    if options.json:
        check_writable(Path(options.json))
    systems = {"": build(options.overrides)}
    if options.against:
        systems[f", {' '.join(options.against)}"] = build([*options.overrides, *options.against])
    rows = measure(systems, options.rounds, options.batches, search=not options.no_search)
    table = Table("per batch", "median ms", "fastest ms", "tokens/s", title=systems[""][0].hparams["variant"])
    for work, times in rows.items():
        seconds, tokens = zip(*times, strict=True)
        speed = f"{sum(tokens) / sum(seconds):,.0f}"
        table.add_row(work, f"{1e3 * median(seconds):.2f}", f"{1e3 * min(seconds):.2f}", speed)
    print_table(table)
    if options.json:
        command = ["attnlab", "bench", *options.arguments]
        write_json(Path(options.json), {"command": command, "seconds and tokens": rows, **environment()})
    return 0


def measure(
    systems: Mapping[str, tuple[Seq2SeqModule, Seq2SeqData]], rounds: int, batches: int, *, search: bool
) -> dict[str, Timings]:
    """Time batches of systems in alternation, by the work and the label; a first round warms up."""
    from attnlab.jobs.logs import silent_lightning

    rows: dict[str, Timings] = {}
    for number in range(rounds + 1):
        for label, system in systems.items():
            with silent_lightning():
                measured = _time_round(*system, batches, search=search)
            for work, times in measured.items() if number > 0 else ():
                rows.setdefault(f"{work}{label}", []).extend(times)
    return rows


def _time_round(module: Seq2SeqModule, data: Seq2SeqData, count: int, *, search: bool) -> dict[str, Timings]:
    """Train on the first batches of an epoch, then decode as many of the validation split."""
    import torch
    from lightning.pytorch.callbacks import LambdaCallback

    from attnlab.training import components
    from attnlab.types import PAD

    timings: dict[str, Timings] = {"train": []}

    def clock() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    def start(*_: Any) -> None:
        timer.started = clock()

    def end(trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
        tokens = int(batch.source_lengths.sum()) + int((batch.labels != PAD).sum())
        timings["train"].append((clock() - timer.started, tokens))

    timer: Any = LambdaCallback(on_train_batch_start=start, on_train_batch_end=end)
    limits = {"max_epochs": 1, "max_steps": -1, "limit_train_batches": count, "limit_val_batches": 0}
    assert module.config is not None
    trainer = components.quiet_trainer(
        module.config, callbacks=[timer], devices=1, num_nodes=1, strategy="auto", **limits
    )
    trainer.fit(module.train(), datamodule=data)
    if not search:
        return timings
    device, settings = trainer.strategy.root_device, module.translator
    network = module.network.to(device).eval()
    greedy = replace(settings, beam_size=1, temperature=None, top_k=None, top_p=None)
    size = settings.beam_size if settings.beam_size > 1 else 5
    for batch in islice(data.val_dataloader(), count):
        pairs = [data.pairs("val")[i] for i in batch.indices.tolist()]
        for name, translator in (("greedy", greedy), (f"beam {size}", replace(greedy, beam_size=size))):
            start()
            with torch.inference_mode(), trainer.precision_plugin.forward_context():
                results = translator(network, batch.to(device), pairs)
            tokens = sum(len(best.tokens) for best, *_ in results)  # EOS included
            timings.setdefault(name, []).append((clock() - timer.started, tokens))
    return timings
