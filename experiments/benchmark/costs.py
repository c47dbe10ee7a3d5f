"""Measure time and memory of a training step by mechanism, into costs.csv.

python costs.py: the networks of the suite alternate on the same batches, so that other load on the machine
affects all of them equally. Measured with the lengths of the task `reverse`, and with 50 tokens on each
side.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from attnlab.config.compose import compose_run
from attnlab.config.options import read_option
from attnlab.report.benchmark.scores import REFERENCE, SUITE
from attnlab.training import build, components

sys.path.append(str(Path(__file__).parents[1] / "speed"))

import timing

FILE = Path(__file__).with_name("costs.csv")
COLUMNS = ("model", "lengths", "ms", "times_additive", "lowest", "highest", "peak_mb")
BATCHES, ROUNDS = 5, 7


def main() -> None:
    """Measure all networks and write costs.csv."""
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for lengths, length in (("task", None), ("50", 50)):
            writer.writerows(measure(lengths, length))
            print(f"measured: {lengths}", file=sys.stderr)


def measure(lengths: str, length: int | None) -> Iterator[tuple[object, ...]]:
    """Yield a row for each network; `length` is None for the lengths of the task.

    Times relative to the reference are of the same round; a row has their median, lowest and highest.
    """
    models = read_option("study", SUITE)["hydra"]["sweeper"]["overrides"]["model"]
    configs = {
        name: compose_run([f"study={SUITE}", *words]) for name, words in models.items() if name != "own"
    }
    reference = configs[REFERENCE]
    settings = timing.Settings.of(reference)
    if length is None:
        corpus = build.build_corpus(reference)
        vocabularies = build.build_vocabularies(reference, corpus)
    else:
        corpus, vocabularies = timing.random_corpus(length, length, 50, BATCHES, reference)
    batches = timing.take_batches(reference, corpus, vocabularies, BATCHES, settings.device)
    steps = {}
    for name, config in configs.items():
        network = build.build_network(config, vocabularies)
        module = components.build_module(config, network, vocabularies, corpus)
        steps[name] = timing.training_step(module, timing.fast_loss, settings)
    times = timing.time_interleaved(steps, batches, ROUNDS, settings.device)
    largest = max(batches, key=lambda batch: batch.source.numel() + batch.labels.numel())
    for name, seconds in times.items():
        ratios = [ours / theirs for ours, theirs in zip(seconds, times[REFERENCE], strict=True)]
        memory = timing.profile_once(steps[name], largest, settings.device).peak_memory
        ratio = (f"{value:.3f}" for value in (median(ratios), min(ratios), max(ratios)))
        yield name, lengths, f"{1e3 * median(seconds):.2f}", *ratio, f"{memory / 1e6:.1f}"


if __name__ == "__main__":
    main()
