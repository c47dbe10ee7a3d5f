"""CPU time of a training step with layer normalisation and recurrent dropout in the cells, and without them.

    python regularised_cells.py experiment=conala_steps step=7_recurrent data.path=conala-train.json

One thread. The variants alternate batch by batch. `ratio` is the median, over batches and rounds, of the time
divided by that of the same batch with fused loops, without layer normalisation and recurrent dropout.
"""

import argparse
import time
from itertools import product
from pathlib import Path
from statistics import median

import timing
import torch
from lightning import seed_everything
from tables import print_table

from attnlab.config.compose import compose_run
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components

VARIANTS = {
    "neither": (False, 0.0),
    "recurrent dropout": (False, 0.2),
    "layer normalisation": (True, 0.0),
    "both": (True, 0.2),
}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of the model")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-plain", action="store_true", help="do not time the plain loops")
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    torch.set_num_threads(1)
    shared = ["trainer.accelerator=cpu", "trainer.precision=32-true", *options.overrides]
    config = compose_run(shared)
    seed_everything(config.seed, verbose=False)
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    device = torch.device("cpu")
    batches = timing.take_batches(config, corpus, vocabularies, options.batches, device)
    works = {}
    for (name, (norm, dropout)), fused in product(
        VARIANTS.items(), [True] if options.no_plain else [True, False]
    ):
        settings = [
            f"{part}.{setting}={value}"
            for part in ("encoder", "decoder")
            for setting, value in (("layer_norm", norm), ("recurrent_dropout", dropout))
        ]
        config = compose_run([*shared, *settings, f"fused={fused}"])
        network = build.build_network(config, vocabularies)
        module = components.build_module(config, network, vocabularies, corpus)
        step = timing.training_step(module, timing.fast_loss, timing.Settings.of(config))
        works[f"{name}, {'fused' if fused else 'plain'}"] = step

    seconds: dict[str, list[float]] = {name: [] for name in works}  # of each batch in each round
    for turn, batch in product(range(options.rounds + 1), batches):
        for name, step in works.items():
            start = time.process_time()
            step(batch)
            if turn > 0:  # the first round warms up
                seconds[name].append(time.process_time() - start)
    tokens = median(timing.sizes_of(batch).tokens for batch in batches)
    base = seconds["neither, fused"]
    rows = [
        {
            "cells": name,
            "cpu_ms": round(1e3 * median(parts), 1),
            "lowest": round(1e3 * min(parts), 1),
            "highest": round(1e3 * max(parts), 1),
            "tokens_per_cpu_second": round(tokens / median(parts)),
            "ratio": round(median(one / two for one, two in zip(parts, base, strict=True)), 3),
        }
        for name, parts in seconds.items()
    ]
    title = f"{config.name}, {network.parameter_count:,} parameters, CPU time of a training step, one thread"
    print_table(rows, title, options.csv)


if __name__ == "__main__":
    main()
