"""Growth of CPU time and memory of training steps and greedy search with lengths of 125 to 1,000 tokens.

    python long.py --csv long.csv

Source and target have the same length. The exponent of a row is the slope of log time, or log memory, over
log length since the row before: 2 is linear in S·T, 1 is linear in S + T. Time is CPU time of one thread, so
that other programs on the machine matter little. Memory is the growth of the resident memory during a call,
which only Linux reports.
"""

import argparse
import ctypes
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import timing
import torch
from tables import print_table

from attnlab.config.compose import compose_run
from attnlab.decoding.search import greedy
from attnlab.jobs.logs import quieten_lightning
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training import build, components
from attnlab.types import EOS

MECHANISMS = ("shift", "additive", "monotonic")
SIZES = ["embedding.size=32", "encoder.size=64", "decoder.size=128", "trainer.accelerator=cpu"]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of the model")
    parser.add_argument("--mechanisms", nargs="+", default=MECHANISMS, metavar="ATTENTION")
    parser.add_argument("--lengths", nargs="+", type=int, default=(125, 250, 500, 1000), metavar="TOKENS")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2, help="measured calls; the fastest counts")
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    if not reset_peak_memory():
        print("memory is not measured: /proc/self/clear_refs cannot be written")
    for mechanism in options.mechanisms:
        measure(mechanism, options.lengths[0], options)  # warm-up
        measured = [measure(mechanism, length, options) for length in options.lengths]
        for work in ("training step", "greedy search"):
            rows += with_exponents(mechanism, work, [each[work] for each in measured], options.lengths)
    print_table(rows, f"Batches of {options.batch_size}", options.csv)


def measure(mechanism: str, length: int, options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Return the CPU seconds and the peak memory in bytes of a training step and of a greedy search."""
    config = compose_run(
        [f"attention={mechanism}", *SIZES, f"batching.batch_size={options.batch_size}", *options.overrides]
    )
    corpus, vocabularies = timing.random_corpus(length, length, 10, 1, config)
    settings = timing.Settings.of(config)
    (batch,) = timing.take_batches(config, corpus, vocabularies, 1, settings.device)
    network = build.build_network(config, vocabularies)
    module = components.build_module(config, network, vocabularies, corpus)
    step = timing.training_step(module, timing.fast_loss, settings)
    assert isinstance(network, Seq2Seq)
    with torch.no_grad():
        network.readout.output.bias[EOS] = -1e4  # no hypothesis ends early
    search = partial(greedy, network.eval(), max_length=length)
    results = {}
    for name, work in (("training step", step), ("greedy search", search)):
        calls = [call(work, batch) for _ in range(options.rounds)]
        seconds, growth = zip(*calls, strict=True)
        results[name] = min(seconds), max(growth)
        print(
            f"{mechanism}, {length} tokens, {name}: {min(seconds):.2f} s, {max(growth) / 1e6:.1f} MB",
            flush=True,
        )
    return results


def call(work: Callable[[Any], object], batch: object) -> tuple[float, float]:
    """Return the CPU seconds of a call and the growth of the resident memory, in bytes, or NaN."""
    resident = reset_peak_memory()
    start = time.process_time()
    work(batch)
    return time.process_time() - start, memory("VmHWM") - resident if resident else math.nan


def reset_peak_memory() -> int:
    """Reset the peak of the resident memory to its current size and return that; 0 if the system cannot."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # gives back what earlier calls freed
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return 0
    return memory("VmRSS")


def memory(name: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


def with_exponents(
    mechanism: str, work: str, measured: list[tuple[float, float]], lengths: list[int]
) -> list[dict[str, object]]:
    """Return one row per length, with the growth since the row before."""
    rows: list[dict[str, object]] = []
    for number, (length, (seconds, memory)) in enumerate(zip(lengths, measured, strict=True)):
        row = {"attention": mechanism, "work": work, "tokens": length, "cpu_ms": round(1e3 * seconds, 1)}
        growth = ["", ""]
        if number:
            before = measured[number - 1]
            doublings = math.log(length / lengths[number - 1])
            growth = [
                f"{math.log(new / old) / doublings:.2f}"
                for new, old in zip((seconds, memory), before, strict=True)
            ]
        rows.append(
            {
                **row,
                "time_exponent": growth[0],
                "memory_mb": round(memory / 1e6, 1),
                "memory_exponent": growth[1],
            }
        )
    return rows


if __name__ == "__main__":
    main()
