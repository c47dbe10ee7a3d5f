"""JoeyNMT 2.3.0 beside attnlab: the same batches, sizes and optimizer, two processes that take turns.

    python peers.py --pairs eng-mar.tsv --joeynmt JOEYNMT_ENVIRONMENT/bin/python

Each worker reads one line a job from its standard input and answers with the seconds it took, so only one
computes at a time. Trains on batches of 64 in random and in like-length order, and decodes 256 sentences for
30 steps. Prints, and writes to --csv, medians over the rounds and ratios to JoeyNMT in fp32. The environment:
pip install --no-deps joeynmt==2.3.0, then torch, importlib_metadata, packaging, tensorboard, sacrebleu,
sentencepiece, subword-nmt, matplotlib and pyyaml, of any versions: it runs with torch 2.13.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
from telling import tell

from attnlab.cli.logs import quieten_lightning
from attnlab.config import build
from attnlab.config.compose import compose_run
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
"""JoeyNMT's model: it steps, attends, and feeds the attentional vector back, which is Luong's order."""


class Worker:
    """A process that does one job at a time."""

    def __init__(self, python: str, script: str, *words: str) -> None:
        command = [python, str(HERE / script), *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        )

    def do(self, *job: object) -> float:
        """The seconds it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, job)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.process.args} ended at job {job}")
        return float(answer)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def write_batches(words: list[str], batches: int, sentences: int, folder: Path) -> int:
    """Write the batches of both orders, and those to decode; returns how many there are of each order."""
    data = ["data=pairs", "tokenizer=words", "tokenizer.max_size=7996", "batching.batch_size=64", *words]
    config = compose_run([*MODEL, *data])
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    print(f"vocabularies {vocabularies.source.size} and {vocabularies.target.size}")
    count = 0
    for order in ORDERS:
        config.batching.bucket_by_length = order == "like-length"
        loaded = build.build_data(config, corpus, vocabularies)
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
    np.savez(path, source=batch.source, source_lengths=batch.source_lengths, target=batch.target)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "overrides", nargs="*", metavar="OVERRIDE", help="settings of our model: decoder=gnmt"
    )
    parser.add_argument("--pairs", required=True, help="tab-separated English and Marathi")
    parser.add_argument(
        "--joeynmt", required=True, metavar="PYTHON", help="of an environment that has JoeyNMT"
    )
    parser.add_argument("--batches", type=int, default=20, help="to train on, of each order")
    parser.add_argument("--sentences", type=int, default=SENTENCES, help="to decode")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("train", "search"), help="half of the measurement")
    parser.add_argument("--csv", type=Path, help="write the table there")
    options = parser.parse_intermixed_args()

    quieten_lightning()
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
        for counted in range(options.rounds + 1):  # the first round is not counted
            for name, parts in jobs.items():
                spent: dict[tuple[str, str, str], float] = {}
                for part in parts:
                    for precision in ("fp32", "bf16"):
                        for who, worker in workers.items():
                            if (who, precision, name) == ("JoeyNMT", "bf16", f"beam {BEAM}"):
                                continue  # ends in an error of its own: its bridge is not under autocast
                            key = (name, who, precision)
                            spent[key] = spent.get(key, 0.0) + worker.do(precision, *part)
                if counted:
                    for key, total in spent.items():
                        seconds.setdefault(key, []).append(total)
        for worker in workers.values():
            worker.end()

    rows = [
        {
            "work": name,
            "who": who,
            "dtype": precision,
            "median s": f"{median(times):.3f}",
            "best s": f"{min(times):.3f}",
            "speed": f"{median(seconds[name, 'JoeyNMT', 'fp32']) / median(times):.2f}",
        }
        for (name, who, precision), times in seconds.items()
    ]
    title = f"{batches} batches of 64, {options.sentences} sentences × {STEPS} steps, {options.rounds} rounds"
    tell(rows, title, options.csv)


if __name__ == "__main__":
    main()
