"""Cost of virtual shards per training step: without shards, and with 1, 2, 4 and 8, in one process.

    OMP_NUM_THREADS=1 python shard_costs.py experiment=reverse_published
    OMP_NUM_THREADS=1 python shard_costs.py experiment=translation data.path=eng-deu.tsv

Each step seeds the generators, and computes the loss, the gradients and the optimizer step. The steps of all
settings alternate batch by batch. Prints the median over rounds of the mean seconds per step, the ratio to
the step without shards with its range over rounds, and the seconds of one digest of an epoch.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from lightning import Trainer
from torch.nn.utils import clip_grad_norm_

from attnlab.config.compose import compose_run
from attnlab.training import build, components
from attnlab.training.callbacks.reproducibility import digest, seed_generators
from attnlab.training.environment import cpu_name
from attnlab.training.module import Seq2SeqModule
from attnlab.training.shards import Shards
from attnlab.types import Batch

sys.path.append(str(Path(__file__).parents[1] / "speed"))

from timing import time_interleaved

SHARDS = (None, 1, 2, 4, 8)


def training_step(module: Seq2SeqModule, shards: int | None) -> Callable[[Batch], None]:
    """Return a function that trains a copy of the module by one step."""
    module = copy.deepcopy(module).train()
    module._trainer = Trainer(logger=False, accelerator="cpu", enable_checkpointing=False)
    parameters = list(module.parameters())
    optimizer = module.make_optimizer(parameters)

    def step(batch: Batch) -> None:
        if shards is None:
            seed_generators(0, 0, 0)
            module.losses(batch).total.backward()  # type: ignore[no-untyped-call]
        else:
            virtual = Shards(shards, seed=0)
            losses = virtual.differentiate(module.losses, batch, parameters, number=0)
            for parameter, gradient in zip(parameters, virtual.gradients, strict=True):
                parameter.grad = gradient.div_(losses.tokens)
        clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of attnlab train")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_intermixed_args()

    config = compose_run(["trainer.accelerator=cpu", *options.overrides])
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    module = components.build_module(config, build.build_network(config, vocabularies), vocabularies, corpus)
    data.setup("fit")
    batches = [batch for batch, _ in zip(data.train_dataloader(), range(options.batches), strict=False)]

    works = {str(shards): training_step(module, shards) for shards in SHARDS}
    times = time_interleaved(works, batches, options.rounds, torch.device("cpu"))
    print(f"{cpu_name()}, {torch.get_num_threads()} threads, {module.network.parameter_count:,} parameters")
    for name, seconds in times.items():
        ratios = [one / other for one, other in zip(seconds, times["None"], strict=True)]
        print(
            f"shards={name}: {1000 * median(seconds):.2f} ms, "
            f"{median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
        )
    weights = module.state_dict()
    started = time.perf_counter()
    digest([weights, weights, weights])  # as large as the weights with the two moments of Adam
    print(f"digest of an epoch: {1000 * (time.perf_counter() - started):.1f} ms")


if __name__ == "__main__":
    main()
