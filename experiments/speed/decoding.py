"""Time of decoding 2,000 sentences of CoNaLa's lengths: batched, one at a time, and with beam size 5.

    python decoding.py data.path=conala-train.json

The network has the sizes of the published CoNaLa system and random weights. The bias of EOS is set so that
outputs have the average length of the references and end at different steps. The methods alternate batch by
batch.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean, median
from typing import Any
from unittest.mock import patch

import timing
import torch
from tables import precisions, print_table

from attnlab.config.compose import compose_run
from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.jobs.logs import quieten_lightning
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training import build, components
from attnlab.types import EOS, Batch


def set_output_length(network: Seq2Seq, batch: Batch, length: float, max_length: int) -> None:
    """Set the bias of EOS so that greedy outputs have about `length` tokens on average."""
    low, high = -50.0, 50.0
    with torch.no_grad():
        network.readout.output.weight *= 20  # logits of random weights hardly depend on the state otherwise
        for _ in range(10):
            middle = (low + high) / 2
            network.readout.output.bias[EOS] = middle
            hypotheses = greedy(network, batch, max_length=max_length).tokens
            low, high = (
                (middle, high) if fmean(len(best[0]) for best in hypotheses) > length else (low, middle)
            )


def rows_of(batch: Batch, rows: slice) -> Batch:
    """Select sentences of a batch and trim their padding."""
    lengths = batch.source_lengths[rows]
    return batch._replace(
        source=batch.source[rows, : int(lengths.max())],
        source_lengths=lengths,
        target=batch.target[rows],
        indices=batch.indices[rows],
    )


def steps_of(search: Callable[..., Any], network: Seq2Seq, batch: Batch, max_length: int) -> float:
    """Return the number of hypothesis steps per sentence of a search."""
    with patch.object(network, "step", wraps=network.step) as step:
        search(network, batch, max_length=max_length)
    return sum(call.args[0].numel() for call in step.call_args_list) / len(batch.indices)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of the model and the data")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--alone", type=int, default=100, help="number of sentences decoded one at a time")
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--max-length", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    torch.manual_seed(0)
    config = compose_run(["experiment=conala", "trainer.accelerator=cpu", *options.overrides])
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    data.setup("fit")
    examples = data.examples("train")
    chosen = list(islice(cycle(range(len(examples))), options.sentences))
    chosen.sort(key=examples.source_lengths.__getitem__)
    size = options.batch_size
    batches = [examples[chosen[i : i + size]] for i in range(0, len(chosen), size)]
    network = build.build_network(config, vocabularies).eval()
    sample = examples[chosen[:: max(1, len(chosen) // size)][:size]]
    set_output_length(network, sample, fmean(examples.target_lengths[chosen]) - 1, options.max_length)
    lengths = [len(best[0]) for best in greedy(network, sample, max_length=options.max_length).tokens]
    print(f"output length: mean {fmean(lengths):.1f} tokens, range {min(lengths)} to {max(lengths)}")

    settings = timing.Settings.of(config)
    alone = max(1, options.alone // len(batches))  # sentences per batch

    def one_at_a_time(batch: Batch) -> None:
        for row in range(min(alone, len(batch.indices))):
            greedy(network, rows_of(batch, slice(row, row + 1)), max_length=options.max_length)

    def search(search_function, precision: str, batch: Batch) -> None:  # type: ignore[no-untyped-def]
        with replace(settings, precision=precision).arithmetic():
            search_function(network, batch, max_length=options.max_length)

    five = partial(beam, size=5)
    works = {"greedy, one at a time": one_at_a_time}
    for name, precision in precisions().items():
        suffix = "" if name == "fp32" else f", {name}"
        works[f"greedy{suffix}"] = partial(search, greedy, precision)
        works[f"beam 5{suffix}"] = partial(search, five, precision)
    times = timing.time_interleaved(works, batches, options.rounds, settings.device)
    each = {name: median(seconds) / size for name, seconds in times.items()}
    each["greedy, one at a time"] *= size / alone
    steps = {
        name: steps_of(search_function, network, batches[len(batches) // 2], options.max_length)
        for name, search_function in (("greedy", greedy), ("beam 5", five))
    }
    print(f"steps per sentence: greedy {steps['greedy']:.1f}, beam 5 {steps['beam 5']:.1f}")
    alone_time, greedy_time = each["greedy, one at a time"], each["greedy"]
    rows = [
        {
            "search": name,
            "ms per sentence": f"{1e3 * seconds:.3f}",
            "speed": f"{alone_time / seconds:.2f}",
            "time, greedy = 1": f"{seconds / greedy_time:.2f}",
        }
        for name, seconds in each.items()
    ]
    print_table(rows, f"{options.sentences} sentences, {size} at a time", options.csv)


if __name__ == "__main__":
    main()
