"""Measure the processor time of a training step by the order of the batches, into costs.csv.

python costs.py ICE_TRAIN ICE_DEV TUR_TRAIN TUR_DEV CONALA PAIRS: files of words and phones, of Turkish forms,
conala-train.json, and a tab-separated file of sentence pairs. Steps with batches of each order alternate, so
that other load on the machine affects all of them equally. Milliseconds of one thread.
"""

import csv
import sys
import time
from pathlib import Path
from statistics import fmean

import torch

from attnlab.config.by_pairs import at_pairs
from attnlab.config.compose import compose_run
from attnlab.training import build, components

sys.path.append(str(Path(__file__).parents[1] / "speed"))

import timing

HERE = Path(__file__).parent
BATCHES, ROUNDS = 40, 3
SMALL = ("encoder.size=64", "decoder.size=128")
SMALL_WORDS = ("encoder.layers=1", "embedding.size=64", "attention_size=64", *SMALL)
RANDOM = "random"
POOLS = {"reverse": (50, 12, 4), "ice_g2p": (3, 2), "tur_inflection": (4,), "conala": (4,), "eng_mar": (10,)}


def main(ice_train: str, ice_dev: str, tur_train: str, tur_dev: str, conala: str, pairs: str) -> None:
    """Measure all data sets and write costs.csv."""
    torch.set_num_threads(1)
    ice = ("experiment=g2p", "attention=additive", "decoder=luong", "batching.source_eos=false")
    tur = ("experiment=inflection", "attention=additive", "data.features_column=2", "data.target_column=1")
    data = {
        "reverse": ["data.train_size=26000", *SMALL],
        "ice_g2p": [*ice, *SMALL_WORDS, f"data.train={ice_train}", f"data.val={ice_dev}"],
        "tur_inflection": [*tur, *SMALL_WORDS, f"data.train={tur_train}", f"data.val={tur_dev}"],
        "conala": ["data=conala", f"data.path={conala}", *SMALL],
        "eng_mar": ["experiment=translation", f"data.path={pairs}", "data.limit=5000", *SMALL],
    }
    with (HERE / "costs.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("data", "pool", "round", "ms", "padding"))
        for name, overrides in data.items():
            writer.writerows(measure(name, overrides))
            file.flush()


def measure(name: str, overrides: list[str]) -> list[tuple[object, ...]]:
    """Return a row per order and round: milliseconds per step, and the share of padding."""
    common = [*overrides, "trainer.accelerator=cpu"]
    orders = {
        str(pool): [*common, "batching.bucket_by_length=true", f"batching.pool={pool}"]
        for pool in POOLS[name]
    }
    orders[RANDOM] = [*common, "batching.bucket_by_length=false"]
    configs = {order: compose_run(words) for order, words in orders.items()}
    config = configs[RANDOM]
    corpus = build.build_corpus(config)
    config = at_pairs(config, len(corpus.train))
    vocabularies = build.build_vocabularies(config, corpus)
    settings = timing.Settings.of(config)
    module = components.build_module(config, build.build_network(config, vocabularies), vocabularies, corpus)
    step = timing.training_step(module, timing.fast_loss, settings)
    batches = {
        order: timing.take_batches(each, corpus, vocabularies, BATCHES, settings.device)
        for order, each in configs.items()
    }
    count = min(map(len, batches.values()))
    times: dict[str, list[float]] = {order: [] for order in batches}
    for _ in range(ROUNDS + 1):
        spent: dict[str, list[float]] = {order: [] for order in batches}
        for position in range(count):
            for order, each in batches.items():
                start = time.thread_time()
                step(each[position])
                spent[order].append(1e3 * (time.thread_time() - start))
        for order, milliseconds in spent.items():
            times[order].append(fmean(milliseconds))
    sizes = {order: [timing.sizes_of(batch) for batch in each] for order, each in batches.items()}
    padding = {
        order: 1 - sum(size.tokens for size in each) / sum(size.padded for size in each)
        for order, each in sizes.items()
    }
    return [
        (name, order, number, round(milliseconds, 3), round(padding[order], 4))
        for order, rounds in times.items()
        for number, milliseconds in enumerate(rounds[1:])
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
