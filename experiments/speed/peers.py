"""Speed comparison with JoeyNMT 2.3.0: the same batches, sizes and optimizer, in two alternating processes.

    python peers.py --pairs eng-mar.tsv --joeynmt JOEYNMT_ENVIRONMENT/bin/python

Each worker reads one job per line from standard input and prints its time, so that only one computes at a
time. Trains on batches of 64 in random order and sorted by length, and decodes 256 sentences for 30 steps.
Prints, and writes to --csv, medians over the rounds and ratios to JoeyNMT in fp32. The environment: pip
install --no-deps joeynmt==2.3.0, then torch, importlib_metadata, packaging, tensorboard, sacrebleu,
sentencepiece, subword-nmt, matplotlib and pyyaml in any versions; it runs with torch 2.13.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
from tables import precisions, print_table

from attnlab.config.compose import compose_run
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components
from attnlab.types import Batch

HERE = Path(__file__).parent
SENTENCES, STEPS, BEAM = 256, 30, 5
ORDERS = ("random", "like-length")
MODEL = [
    "encoder.size=512",
    "encoder.layers=2",
    "decoder=luong",
    "decoder.size=512",
    "decoder.layers=2",
    "attention=additive",
    "attention_size=512",
    "embedding.size=256",
    "readout.parts=[state]",
    "optimizer=sgd",
    "optimizer.lr=0.1",
    "trainer.accelerator=cpu",
]
"""JoeyNMT's model: Luong's order with input feeding."""


class Worker:
    """A process that runs one job at a time."""

    def __init__(self, python: str, script: str, *arguments: str) -> None:
        command = [python, str(HERE / script), *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        )

    def run(self, *job: object) -> float:
        """Run a job and return its time in seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, job)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.process.args} ended at job {job}")
        return float(answer)

    def close(self) -> None:
        """Wait for the process to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def write_batches(overrides: list[str], batches: int, sentences: int, folder: Path) -> int:
    """Write the training batches in both orders and the batches to decode; return the number per order."""
    data = ["data=pairs", "tokenizer=words", "tokenizer.max_size=7996", "batching.batch_size=64", *overrides]
    config = compose_run([*MODEL, *data])
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    print(f"vocabularies {vocabularies.source.size} and {vocabularies.target.size}")
    count = 0
    for order in ORDERS:
        config.batching.bucket_by_length = order == "like-length"
        loaded = components.build_data(config, corpus, vocabularies)
        loaded.setup("fit")
        taken = list(islice(loaded.train_dataloader(), batches))
        for i, batch in enumerate(taken):
            write(batch, folder / f"{order}-{i}.npz")
        count = len(taken)
    first = loaded.examples("train")
    size = config.batching.batch_size
    shortest_first = sorted(range(min(sentences, len(first))), key=first.source_lengths.__getitem__)
    for i in range(0, len(shortest_first), size):
        write(first[shortest_first[i : i + size]], folder / f"search-{i // size}.npz")
    sizes = f"{vocabularies.source.size} {vocabularies.target.size}"
    (folder / "vocabularies").write_text(sizes)
    return count


def write(batch: Batch, path: Path) -> None:
    """Write a batch as an npz file."""
    np.savez(path, source=batch.source, source_lengths=batch.source_lengths, target=batch.target)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", help="settings of attnlab's model, such as decoder=luong"
    )
    parser.add_argument("--pairs", required=True, help="tab-separated English and Marathi")
    parser.add_argument(
        "--joeynmt", required=True, metavar="PYTHON", help="Python of an environment with JoeyNMT"
    )
    parser.add_argument("--batches", type=int, default=20, help="training batches per order")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="sentences to decode")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("train", "search"), help="run only half of the measurements")
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    measured = precisions()
    with tempfile.TemporaryDirectory() as folder:
        batches = write_batches(
            [f"data.path={options.pairs}"], options.batches, options.sentences, Path(folder)
        )
        workers = {
            "JoeyNMT": Worker(options.joeynmt, "peer_joeynmt.py", folder),
            "attnlab": Worker(sys.executable, "peer_attnlab.py", folder, *MODEL, *options.overrides),
        }
        searches = len(list(Path(folder).glob("search-*.npz")))
        jobs = {}
        if options.only != "search":
            jobs |= {f"train, {order}": [("train", order, i) for i in range(batches)] for order in ORDERS}
        if options.only != "train":
            jobs |= {
                name: [("search", beam, i) for i in range(searches)]
                for name, beam in (("greedy", 1), (f"beam {BEAM}", BEAM))
            }
        seconds: dict[tuple[str, str, str], list[float]] = {}
        for counted in range(options.rounds + 1):  # the first round is a warm-up
            for name, parts in jobs.items():
                spent: dict[tuple[str, str, str], float] = {}
                for part in parts:
                    for precision in (*measured, "int8"):
                        for program, worker in workers.items():
                            if (program, precision, name) == ("JoeyNMT", "bf16", f"beam {BEAM}"):
                                continue  # fails in JoeyNMT: its bridge does not run under autocast
                            if precision == "int8" and (program == "JoeyNMT" or name.startswith("train")):
                                continue  # attnlab searches in int8, and neither program trains in it
                            key = (name, program, precision)
                            spent[key] = spent.get(key, 0.0) + worker.run(precision, *part)
                if counted:
                    for key, total in spent.items():
                        seconds.setdefault(key, []).append(total)
        for worker in workers.values():
            worker.close()

    rows = [
        {
            "work": name,
            "program": program,
            "dtype": precision,
            "median s": f"{median(times):.3f}",
            "best s": f"{min(times):.3f}",
            "speed": f"{median(seconds[name, 'JoeyNMT', 'fp32']) / median(times):.2f}",
        }
        for (name, program, precision), times in seconds.items()
    ]
    title = f"{batches} batches of 64, {options.sentences} sentences × {STEPS} steps, {options.rounds} rounds"
    print_table(rows, title, options.csv)


if __name__ == "__main__":
    main()
