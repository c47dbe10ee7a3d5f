"""attnlab worker of peers.py: reads jobs from standard input and prints their times in seconds."""

import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import timing
import torch
from peers import STEPS

from attnlab.config.compose import compose_run
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.fast import int8_products
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components
from attnlab.training.environment import keep_freed_memory
from attnlab.types import EOS, Batch


def load(path: Path) -> Batch:
    """Load a batch written by peers.py."""
    arrays = {name: torch.from_numpy(array) for name, array in np.load(path).items()}
    return Batch(**arrays, indices=torch.arange(len(arrays["source"])))


def main(folder: str, *overrides: str) -> None:
    """Run the command."""
    quieten_lightning()
    keep_freed_memory()  # as the commands of attnlab do
    torch.manual_seed(0)
    random.seed(0)
    config = compose_run(list(overrides))
    source, target = map(int, (Path(folder) / "vocabularies").read_text().split())
    vocabularies = Vocabularies(symbols(["3"], count=source - 3), symbols(["3"], count=target - 3))
    corpus = Corpus(train=[Pair("3", "3")], val=[Pair("3", "3")], test=[])
    network = build.build_network(config, vocabularies)
    module = components.build_module(config, network, vocabularies, corpus)
    full = timing.Settings.of(config)
    settings = {"fp32": full, "bf16": replace(full, precision="bf16-mixed")}
    steps = {
        name: timing.training_step(module, timing.fast_loss, chosen) for name, chosen in settings.items()
    }
    network.eval()
    with torch.no_grad():
        network.readout.output.bias[EOS] = -1e9  # no sentence ends before the last step
    batches = {path.stem: load(path) for path in Path(folder).glob("*.npz")}

    for line in sys.stdin:
        precision, work, option, number = line.split()
        batch = batches[f"{option if work == 'train' else work}-{number}"]
        began = time.perf_counter()
        if work == "train":
            steps[precision](batch)
        else:
            narrow = int8_products(network) if precision == "int8" else settings[precision].arithmetic()
            with narrow:
                if option == "1":
                    greedy(network, batch, max_length=STEPS - 1)
                else:
                    beam(network, batch, size=int(option), max_length=STEPS - 1)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
