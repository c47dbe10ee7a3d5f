"""Measure time, floating-point operations and memory of a training step by mechanism, into costs.csv.

python costs.py: the mechanisms alternate on the same batches, so that other load on the machine affects all
of them equally. Measured with the lengths of the task and with 50 tokens on both sides. Times are
milliseconds, and multiples of the additive mechanism's time in the same round.
"""

import csv
import sys
from pathlib import Path
from statistics import fmean

from attnlab.config.compose import compose_run
from attnlab.training import build, components

sys.path.append(str(Path(__file__).parents[1] / "speed"))

import timing
from flops import useful_flops

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE.parents[1] / "conf" / "attention").glob("*.yaml"))
MECHANISMS = {name: [f"attention={name}"] for name in NAMES}
MECHANISMS["additive_biased"] = ["attention=additive", "attention_bias=true"]
MODEL = ("encoder.size=64", "decoder.size=128", "trainer.accelerator=cpu")
LENGTHS = {"task": None, "50": 50}
BATCHES, ROUNDS = 5, 7


def main() -> None:
    """Measure all mechanisms and write costs.csv."""
    with (HERE / "costs.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("mechanism", "lengths", "round", "ms", "times_additive", "gflop", "peak_mb"))
        for lengths, length in LENGTHS.items():
            for row in measure(lengths, length):
                writer.writerow(row)
            print(f"measured: {lengths}", file=sys.stderr)


def measure(lengths: str, length: int | None) -> list[tuple[object, ...]]:
    """Return one row per mechanism and round; `length` is None for the lengths of the task."""
    configs = {name: compose_run([*words, *MODEL]) for name, words in MECHANISMS.items()}
    base = configs["additive"]
    settings = timing.Settings.of(base)
    if length is None:
        corpus = build.build_corpus(base)
        vocabularies = build.build_vocabularies(base, corpus)
    else:
        corpus, vocabularies = timing.random_corpus(length, length, 50, BATCHES, base)
    batches = timing.take_batches(base, corpus, vocabularies, BATCHES, settings.device)
    modules = {
        name: components.build_module(config, build.build_network(config, vocabularies), vocabularies, corpus)
        for name, config in configs.items()
    }
    steps = {
        name: timing.training_step(module, timing.fast_loss, settings) for name, module in modules.items()
    }
    times = timing.time_interleaved(steps, batches, ROUNDS, settings.device)
    largest = max(batches, key=lambda batch: batch.source.numel() + batch.labels.numel())
    rows: list[tuple[object, ...]] = []
    for name, seconds in times.items():
        flops = fmean(3 * useful_flops(modules[name].network, batch) for batch in batches)
        memory = timing.profile_once(steps[name], largest, settings.device).peak_memory
        rows += [
            (
                name,
                lengths,
                number,
                round(1e3 * each, 3),
                round(each / additive, 4),
                round(flops / 1e9, 4),
                round(memory / 1e6, 2),
            )
            for number, (each, additive) in enumerate(zip(seconds, times["additive"], strict=True))
        ]
    return rows


if __name__ == "__main__":
    main()
