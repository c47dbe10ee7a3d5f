"""Size, agreement and speed of the exports of a run: python measure.py RUN [SENTENCES].

Decodes sources of the test split greedily with attnlab and with the exported graphs in fp32 and int8. Speeds
are output words per second of processor time on one thread, best of three interleaved rounds; agreement is
the share of outputs that equal those of attnlab. Writes results.csv.
"""

import csv
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from sacrebleu.metrics.bleu import BLEU

from attnlab.data.corpus import Pair
from attnlab.deploy.export import folder, graphs
from attnlab.deploy.export.translate import Translator
from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import locate_run
from attnlab.training.build import build_translator, encode_pairs
from attnlab.training.models import load_network

ROUNDS = 3
BATCHES = (64, 1)
"""Sentences that are decoded together."""


class Program(NamedTuple):
    """A way to decode a batch of sentences."""

    decode: Callable[[list[str]], list[str]]
    size: float  # bytes of the weights, or of the files


def main(path: str, count: int) -> None:
    torch.set_num_threads(1)
    run, checkpoint = locate_run(path)
    config, vocabularies, network, _ = load_network(checkpoint)
    predictions = read_predictions(run.predictions / "test.jsonl")[:count]
    sources = [prediction.source for prediction in predictions]
    references = [prediction.references[0] for prediction in predictions]
    greedy = replace(build_translator(config, vocabularies), beam_size=1, reranking=())

    def decode_batch(sources: list[str]) -> list[str]:
        pairs = [Pair(source, "") for source in sources]
        batch = encode_pairs(config, vocabularies, pairs)[list(range(len(pairs)))]
        return [predictions[0].hypothesis for predictions in greedy(network, batch, pairs)]

    exported = graphs.export(network)
    with tempfile.TemporaryDirectory() as temporary:
        programs = {"attnlab": Program(decode_batch, 4 * network.parameter_count)}
        for name, int8 in (("ONNX fp32", False), ("ONNX int8", True)):
            target = Path(temporary) / name
            folder.write(target, exported, config, vocabularies, int8=int8)
            size = sum(file.stat().st_size for file in target.glob("*.onnx"))
            translator = Translator(target, threads=1)
            programs[name] = Program(partial(translate, translator), size)
        outputs = {name: decode(program, sources, max(BATCHES))[0] for name, program in programs.items()}
        speeds = {(name, batch): 0.0 for name in programs for batch in BATCHES}
        for _ in range(ROUNDS):
            for name, batch in speeds:
                texts, seconds = decode(programs[name], sources[: 200 if batch == 1 else None], batch)
                words = sum(len(text.split()) for text in texts)
                speeds[name, batch] = max(speeds[name, batch], words / seconds)
    rows = []
    for name, texts in outputs.items():
        equal = sum(text == other for text, other in zip(texts, outputs["attnlab"], strict=True))
        rows.append(
            {
                "program": name,
                "size [MB]": f"{programs[name].size / 1e6:.1f}",
                "equal outputs [%]": f"{100 * equal / len(sources):.1f}",
                "BLEU": f"{BLEU(tokenize='none').corpus_score(texts, [references]).score:.2f}",
                **{f"words/s, batches of {batch}": f"{speeds[name, batch]:.0f}" for batch in BATCHES},
            }
        )
    with Path(__file__).with_name("results.csv").open("w", newline="", encoding="utf-8") as results:
        writer = csv.DictWriter(results, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(sources)} sentences")
    for row in rows:
        print(*row.values(), sep=" | ")


def translate(translator: Translator, texts: list[str]) -> list[str]:
    """Decode texts with ONNX Runtime."""
    return translator.translate([translator.read(text) for text in texts])


def decode(program: Program, sources: list[str], batch: int) -> tuple[list[str], float]:
    """Return the outputs and the seconds of processor time."""
    start = time.process_time()
    batches = [sources[first : first + batch] for first in range(0, len(sources), batch)]
    texts = [text for sentences in batches for text in program.decode(sentences)]
    return texts, time.process_time() - start


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
