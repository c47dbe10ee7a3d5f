"""Time, memory and cache of corpora in mapped files, from 100,001 pairs up.

    python corpora.py --sizes 100001 1000000 12000000 --folder FOLDER --csv corpora.csv --figure corpora.png

Generated pairs have 5 to 45 words per side. Each start is a process of its own: the first one writes the
cache, the later one reads it, and both train a tiny network for 20 steps with 4,000 subwords. CPU seconds are
those of all threads, of the imports, of the data (with building the network) and of the steps.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import lightning
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from tables import write_csv

import attnlab
from attnlab.data import digests
from attnlab.report.files import save
from attnlab.report.style import STYLE_SHEET

WORDS = 50_000
BLOCK = 20_000
SETTINGS = ["data=pairs", "data.test_fraction=0", "tokenizer=subwords", "tokenizer.max_size=4000"]
NETWORK = ["embedding.size=16", "encoder.size=16", "decoder.size=32", "batching.batch_size=80"]


def generate(path: Path, size: int, seed: int) -> None:
    """Write pairs of random words, whose frequencies follow Zipf's law."""
    if path.exists():
        return
    random = np.random.default_rng(seed)
    spelling = np.random.default_rng(0)
    letters = list("etaoinshrdlucmfwypvb")
    words = ["".join(spelling.choice(letters, size=spelling.integers(2, 10))) for _ in range(WORDS)]
    frequencies = 1 / (np.arange(WORDS) + 2.7)
    cumulated = np.cumsum(frequencies / frequencies.sum())
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, size, BLOCK):
            count = min(BLOCK, size - start)
            sources = random.integers(5, 46, size=count)
            lengths = np.stack(
                [sources, np.clip(sources + random.integers(-3, 4, size=count), 5, 45)], axis=1
            )
            ids = np.searchsorted(cumulated, random.random(lengths.sum())).clip(max=WORDS - 1)
            sides = np.split(ids, np.cumsum(lengths.ravel())[:-1])
            texts = [" ".join([words[id] for id in side.tolist()]) for side in sides]
            lines = zip(texts[::2], texts[1::2], strict=True)
            file.writelines(f"{source}\t{target}\n" for source, target in lines)


def train(folder: Path, size: int) -> dict[str, float]:
    """Train 20 steps; returns CPU seconds by part, wall seconds to their end, and the peak memory in GB."""
    start, imported = time.perf_counter(), cpu_seconds()
    files = [
        f"data.train={folder}/{size}.tsv",
        f"data.val={folder}/val.tsv",
        f"paths.cache={folder}/cache-{size}",
    ]
    module, data = attnlab.build([*SETTINGS, *NETWORK, *files])
    digests.describe(data.corpus, data.vocabularies)
    digests.source_hashes(data.corpus.train, data.vocabularies.source)
    digests.count_duplicates(data.corpus.train)
    data.examples("train")
    prepared = cpu_seconds()
    trainer = lightning.Trainer(
        max_steps=20,
        accelerator="cpu",
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
    )
    trainer.fit(module, data)
    return {
        "imports CPU s": imported,
        "data CPU s": prepared - imported,
        "steps CPU s": cpu_seconds() - prepared,
        "wall s": time.perf_counter() - start,
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
    }


def cpu_seconds() -> float:
    """Return the CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """Measure the first and the later start of each size, each in a process of its own."""
    generate(options.folder / "val.tsv", 1000, seed=1)
    rows: list[dict[str, object]] = []
    for size in options.sizes:
        generate(options.folder / f"{size}.tsv", size, seed=2)
        text = (options.folder / f"{size}.tsv").stat().st_size
        for start in ("first", "later"):
            command = [sys.executable, __file__, "--folder", options.folder, "--child", str(size)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            values = json.loads(output.splitlines()[-1])
            cache = sum(file.stat().st_size for file in (options.folder / f"cache-{size}").rglob("*"))
            row = {"pairs": size, "start": start, **{name: f"{value:.2f}" for name, value in values.items()}}
            rows.append({**row, "text GB": f"{text / 1e9:.3f}", "cache GB": f"{cache / 1e9:.3f}"})
            print(rows[-1], flush=True)
    return rows


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Draw CPU seconds, peak and cache by the number of pairs, on logarithmic axes."""
    with mpl.rc_context({"text.parse_math": True}, fname=STYLE_SHEET):
        figure = Figure(figsize=(9, 3), layout="constrained")
        columns = {
            "data CPU s": "CPU for the data [s]",
            "peak GB": "peak of memory [GB]",
            "cache GB": "cache [GB]",
        }
        for axes, (column, label) in zip(figure.subplots(1, 3), columns.items(), strict=True):
            for start in ("first", "later"):
                chosen = [row for row in rows if row["start"] == start]
                points = [(int(row["pairs"]), float(row[column])) for row in chosen]
                axes.loglog(*zip(*points, strict=True), marker="o", label=f"{start} start")
            axes.set(xlabel="pairs", ylabel=label)
            if column == "peak GB":
                axes.set_ylim(0.1, 10)  # or else a growth of a tenth looks like one of the corpus
            axes.legend()
        save(figure, path)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_001, 1_000_000, 12_000_000])
    parser.add_argument(
        "--folder", type=Path, required=True, help="folder of the generated files and the caches"
    )
    parser.add_argument("--csv", type=Path, help="file of all measurements")
    parser.add_argument("--figure", type=Path, help="image of the measurements")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train(options.folder, options.child)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    write_csv(measure(options), options.csv)
    with options.csv.open(newline="", encoding="utf-8") as file:
        draw(list(csv.DictReader(file)), options.figure)


if __name__ == "__main__":
    main()
