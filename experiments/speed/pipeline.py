"""Throughput of the input pipeline, compared with training.

    python pipeline.py experiment=reverse_published
    python pipeline.py experiment=conala data.path=conala-train.json

Alternates between one epoch of the training loader alone and training steps on some of its batches.
"""

import argparse
import time
from itertools import islice
from pathlib import Path
from statistics import median

import timing
import torch
from tables import print_table

from attnlab.config.compose import compose_run
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of attnlab train")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="training steps per round")
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    torch.manual_seed(0)
    config = compose_run(["trainer.accelerator=cpu", *options.overrides])
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    data.setup("fit")
    loader = data.train_dataloader()
    network = build.build_network(config, vocabularies)
    module = components.build_module(config, network, vocabularies, corpus)
    step = timing.training_step(module, timing.fast_loss, timing.Settings.of(config))

    load_times, train_times = [], []
    for _ in range(options.rounds + 1):
        began = time.perf_counter()
        count = sum(1 for _ in loader)
        load_times.append((time.perf_counter() - began) / count)
        batches = list(islice(loader, options.steps))
        began = time.perf_counter()
        for batch in batches:
            step(batch)
        train_times.append((time.perf_counter() - began) / len(batches))
    load, train = median(load_times[1:]), median(train_times[1:])  # the first round is a warm-up
    row = {
        "experiment": config.name,
        "ms per batch": f"{1e3 * load:.3f}",
        "ms per training step": f"{1e3 * train:.2f}",
        "speed": f"{train / load:.0f}",
    }
    print_table([row], "Loading and training, medians", options.csv)


if __name__ == "__main__":
    main()
