"""Growth of the time and memory of a training step and a beam search, for additive attention.

    python growth.py --figure growth.png --csv growth.csv

Source length, target length, both lengths, batch and vocabulary grow in training, the beam in search. The
fused and the plain loop alternate. `--redraw` draws the figures from the CSV file without measuring.
"""

import argparse
import copy
import csv
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median

import matplotlib as mpl
import timing
import torch
from matplotlib.figure import Figure
from tables import write_csv

from attnlab.config.compose import compose_run
from attnlab.decoding.beam import beam
from attnlab.fast import make_plain
from attnlab.jobs.logs import quieten_lightning
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.report.files import save
from attnlab.report.style import COLOURS, STYLE_SHEET
from attnlab.training import build, components
from attnlab.training.module import Seq2SeqModule
from attnlab.types import EOS, Batch

USUAL = {"source": 50, "target": 50, "batch": 4, "vocabulary": 500}
"""Sizes that do not grow: tokens, tokens, sentences, words."""
LENGTHS = (10, 50, 100, 200, 400)
GROWING = {
    "source": [{"source": length} for length in LENGTHS],
    "target": [{"target": length} for length in LENGTHS],
    "both lengths": [{"source": length, "target": length} for length in LENGTHS],
    "batch": [{"batch": size} for size in (1, 4, 16, 64, 128)],
    "vocabulary": [{"vocabulary": size} for size in (500, 2000, 8000, 32000)],
}
BEAMS = (1, 2, 5, 10, 20)
STEPS = 30
"""Steps of a search."""
LABELS = {
    "source": "source, tokens (target 50)",
    "target": "target, tokens (source 50)",
    "both lengths": "source and target, tokens",
    "batch": "batch, sentences",
    "vocabulary": "vocabulary, words",
    "beam": "beam, hypotheses",
}
MODEL = [
    "attention=additive",
    "decoder=bahdanau",
    "readout.parts=[state]",
    "attention_size=256",
    "embedding.size=64",
    "encoder.size=128",
    "decoder.size=256",
    "trainer.accelerator=cpu",
]


def random_module(
    sizes: dict[str, int], overrides: list[str]
) -> tuple[Seq2SeqModule, Batch, timing.Settings]:
    """Return a network with random weights and one batch of random sentences of these sizes."""
    config = compose_run([*MODEL, f"batching.batch_size={sizes['batch']}", *overrides])
    corpus, vocabularies = timing.random_corpus(
        sizes["source"], sizes["target"], sizes["vocabulary"], 1, config
    )
    settings = timing.Settings.of(config)
    (batch,) = timing.take_batches(config, corpus, vocabularies, 1, settings.device)
    network = build.build_network(config, vocabularies)
    return components.build_module(config, network, vocabularies, corpus), batch, settings


def measure_training(sizes: dict[str, int], options: argparse.Namespace) -> list[dict[str, object]]:
    """Return one row for the fused loop and one for the plain loop."""
    module, batch, settings = random_module(USUAL | sizes, options.overrides)
    losses = {"fused": timing.fast_loss, "plain": timing.plain_loss}
    measured = timing.measure_training(module, losses, [batch], settings, options.rounds)
    return [
        row_of(row.work, next(iter(sizes.values())), row.seconds, row.peak_memory)
        for row in measured
        if row.peak_memory is not None
    ]


def measure_search(size: int, options: argparse.Namespace) -> list[dict[str, object]]:
    """Return one row for the fused and one for the plain search of `STEPS` steps."""
    module, batch, settings = random_module(USUAL, options.overrides)
    network = module.network.eval()
    assert isinstance(network, Seq2Seq)
    with torch.no_grad():
        network.readout.output.bias[EOS] = -1e4  # no hypothesis ends early

    plain = copy.deepcopy(network)
    make_plain(plain)
    works = {
        "fused": partial(beam, network, size=size, max_length=STEPS),
        "plain": partial(beam, plain, size=size, max_length=STEPS),
    }
    times = timing.time_interleaved(works, [batch], options.rounds, settings.device)
    return [
        row_of(name, size, times[name], timing.profile_once(work, batch, settings.device).peak_memory)
        for name, work in works.items()
    ]


def row_of(loop: str, value: int, seconds: list[float], memory: int) -> dict[str, object]:
    """Return one line of the file."""
    return {
        "loop": loop,
        "size": value,
        "ms": round(1e3 * median(seconds), 3),
        "memory_mb": round(memory / 1e6, 3),
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--figure", type=Path, required=True, help="memory; the time figure is NAME-time")
    parser.add_argument("--csv", type=Path, required=True, help="file of all measurements")
    parser.add_argument("--redraw", action="store_true", help="only draw the figures of the file")
    options = parser.parse_intermixed_args()

    if not options.redraw:
        quieten_lightning()
        write_csv(measure(options), options.csv)
    with options.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    draw(rows, "memory_mb", "memory, MB", options.figure)
    draw(rows, "ms", "time, ms", options.figure.with_stem(f"{options.figure.stem}-time"))


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """Measure and print all rows."""
    rows: list[dict[str, object]] = []
    for name, points in GROWING.items():
        for sizes in points:
            rows += [{"grows": name, **row} for row in measure_training(sizes, options)]
            print(*rows[-2:], sep="\n", flush=True)
    for size in BEAMS:
        rows += [{"grows": "beam", **row} for row in measure_search(size, options)]
        print(*rows[-2:], sep="\n", flush=True)
    return rows


def draw(rows: list[dict[str, str]], column: str, label: str, path: Path) -> None:
    """Draw one panel for each growing size, with a line for each loop."""
    with mpl.rc_context(fname=STYLE_SHEET):
        figure = Figure(figsize=(9, 5), layout="constrained")
        panels = figure.subplots(2, 3).flat
        for axes, (name, group) in zip(panels, groupby(rows, lambda row: row["grows"]), strict=True):
            points = list(group)
            for loop, colour in zip(("fused", "plain"), COLOURS, strict=False):
                line = [(int(row["size"]), float(row[column])) for row in points if row["loop"] == loop]
                axes.plot(*zip(*line, strict=True), color=colour, marker=".", label=loop)
            axes.set_xlim(left=0)
            axes.set_ylim(bottom=0)
            axes.set_xlabel(LABELS[name])
            axes.set_title("search" if name == "beam" else "training step", loc="left")
        figure.supylabel(label, fontsize=mpl.rcParams["axes.labelsize"])
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    save(figure, path)


if __name__ == "__main__":
    main()
