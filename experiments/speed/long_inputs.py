"""Time and memory of a training step and a greedy search at lengths of 100 to 1,000 tokens.

    python long_inputs.py --csv long_inputs.csv

Four sentences whose sources and targets have the same length. Times are CPU times of one thread, medians
of rounds in which the mechanisms alternate; memory is the peak of the allocations of a call beyond weights.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from statistics import median

import torch
from growth import random_module
from tables import print_table

from attnlab.decoding.beam import beam
from attnlab.jobs.logs import quieten_lightning
from attnlab.training.benchmark import timing
from attnlab.types import EOS

MECHANISMS = {
    "additive": ["attention=additive"],
    "local_m": ["attention=local_m"],
    "shift": ["attention=shift"],
    "finite_state": ["attention=shift", "decoder=finite_state", "readout.parts=[state,context]"],
}
LENGTHS = (100, 250, 500, 1000)


def measure(length: int, rounds: int) -> list[dict[str, object]]:
    """Return one row for each mechanism."""
    works = {}
    for name, overrides in MECHANISMS.items():
        module, batch, settings = random_module(
            {"source": length, "target": length, "batch": 4, "vocabulary": 500}, overrides
        )
        network = module.network
        with torch.no_grad():
            network.readout.output.bias[EOS] = -1e4  # no hypothesis ends early
        training = timing.training_step(module, timing.fast_loss, settings)
        search = partial(beam, timing.copy_of(network).eval(), size=1, max_length=length)
        works[name] = (training, search, batch, settings.device)
    times: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for name, (*both, batch, _) in works.items():
            for which, work in enumerate(both):
                start = time.thread_time()
                work(batch)
                times.setdefault((name, which), []).append(time.thread_time() - start)
    rows: list[dict[str, object]] = []
    for name, (training, search, batch, device) in works.items():
        memory = [timing.profile_once(work, batch, device).peak_memory for work in (training, search)]
        rows.append(
            {
                "attention": name,
                "length": length,
                "training_s": round(median(times[name, 0]), 3),
                "search_s": round(median(times[name, 1]), 3),
                "training_mb": round((memory[0] or 0) / 1e6, 1),
                "search_mb": round((memory[1] or 0) / 1e6, 1),
            }
        )
    return rows


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    quieten_lightning()
    torch.set_num_threads(1)
    rows = [row for length in LENGTHS for row in measure(length, options.rounds)]
    print_table(rows, "Training steps and greedy searches, 4 sentences", options.csv)


if __name__ == "__main__":
    main()
