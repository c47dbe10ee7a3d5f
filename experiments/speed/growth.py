"""Growth of the time and memory of a training step with the sequence lengths, for additive attention.

    python growth.py --figure growth.png --csv results.csv

Three series: growing source, growing target, both growing. The fused and the plain loop alternate.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from tables import write_csv

from attnlab.benchmark import timing
from attnlab.cli.logs import quieten_lightning
from attnlab.config import build
from attnlab.config.compose import compose_run
from attnlab.plotting.curves import plot_curves
from attnlab.plotting.files import save

FIXED = 50
"""Length of the side that does not grow, in tokens."""
SERIES = {
    "source": lambda length: (length, FIXED),
    "target": lambda length: (FIXED, length),
    "both": lambda length: (length, length),
}
MODEL = [
    "attention=additive",
    "decoder=bahdanau",
    "readout.parts=[state]",
    "attention_size=256",
    "embedding.size=64",
    "encoder.size=128",
    "decoder.size=256",
    "batching.batch_size=4",
    "trainer.accelerator=cpu",
]


def measure(source: int, target: int, options: argparse.Namespace) -> list[dict[str, object]]:
    """Return one row for the fused loop and one for the plain loop."""
    config = compose_run([*MODEL, *options.overrides])
    corpus, vocabularies = timing.random_corpus(source, target, 500, 1, config)
    settings = timing.Settings.of(config)
    batches = timing.take_batches(config, corpus, vocabularies, 1, settings.device)
    module = build.build_module(config, build.build_network(config, vocabularies), vocabularies, corpus)
    losses = {"attnlab": timing.fast_loss, "plain": timing.plain_loss}
    rows = timing.measure_training(module, losses, batches, settings, options.rounds)
    return [
        {
            "work": row.work,
            "S": source,
            "T": target + 1,  # EOS included
            "ms": round(1e3 * median(row.seconds), 3),
            "memory_mb": round(row.peak_memory / 1e6, 3),
        }
        for row in rows
        if row.peak_memory is not None
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of the model")
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 50, 100, 200, 300, 400])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="file of the memory figure; the time figure is NAME-time")
    parser.add_argument("--csv", type=Path, required=True, help="file of all measurements")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    rows = []
    for name, lengths in SERIES.items():
        for length in options.lengths:
            for row in measure(*lengths(length), options):
                rows.append({"grows": name, **row})
                print(*rows[-1].values(), sep="\t", flush=True)
    write_csv(rows, options.csv)
    if options.figure:
        draw(rows, options.figure, "memory_mb", "memory per training step, MB")
        draw(
            rows, options.figure.with_stem(f"{options.figure.stem}-time"), "ms", "time per training step, ms"
        )


def draw(rows: list[dict[str, object]], path: Path, column: str, label: str) -> None:
    """Draw a column against the length that grows."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        grown = {"source": row["S"], "target": row["T"], "both": row["S"]}[str(row["grows"])]
        name = f"{row['work']}, {row['grows']} grows"
        series.setdefault(name, []).append((grown, row[column]))  # type: ignore[arg-type]
    save(plot_curves(series, x_label="length, in tokens", y_label=label), path)


if __name__ == "__main__":
    main()
