"""Shares of the steps of greedy search and of a beam of 5: products, soft-max, attention, gathering.

    python search_profile.py --csv search-profile.csv

The model is that of `peers.py`, untrained, with random sentences of 10 tokens; no search ends before 30
steps. "bare products" is the CPU time of the products alone, repeated with equal numbers of rows, divided by
that of the search without the profiler, in alternating rounds on one thread.
"""

import argparse
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import timing
import torch
from peers import BEAM, MODEL, STEPS
from tables import print_table
from torch.profiler import ProfilerActivity, profile

from attnlab.config.compose import compose_run
from attnlab.decoding.beam import beam
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build
from attnlab.training.environment import keep_freed_memory
from attnlab.types import EOS

ONEDNN = "mkldnn::_linear_pointwise"
GROUPS = {
    "products": (ONEDNN, "aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm"),
    "soft-max and top-k": ("aten::_log_softmax", "aten::topk", "aten::amax", "aten::sort", "aten::gather"),
    "attention scores": ("aten::sigmoid_", "aten::_softmax"),
    "gathering": ("aten::index", "aten::index_select", "aten::_index_put_impl_", "aten::copy_", "aten::cat"),
    "storing weights": ("mkldnn::_reorder_linear_weight",),
}


def group_of(operator: str) -> str:
    """Return the group of an operator."""
    return next((name for name, operators in GROUPS.items() if operator in operators), "other operators")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=4, help="batches of 64 sentences")
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_args()

    quieten_lightning()
    keep_freed_memory()
    torch.set_num_threads(1)
    config = compose_run([*MODEL, "batching.batch_size=64"])
    corpus, vocabularies = timing.random_corpus(10, STEPS, 8000, options.batches, config)
    batches = timing.take_batches(config, corpus, vocabularies, options.batches, torch.device("cpu"))
    network = build.build_network(config, vocabularies).eval()
    torch.nn.init.constant_(network.readout.output.bias[EOS : EOS + 1], -1e9)
    rows = []
    for size in (1, BEAM):

        def search(size: int = size) -> None:
            for batch in batches:
                beam(network, batch, size=size, max_length=STEPS - 1)

        search()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            start = time.perf_counter()
            search()
            passed = 1e6 * (time.perf_counter() - start)
        shares: dict[str, float] = defaultdict(float)
        for event in profiler.key_averages():
            shares[group_of(event.key)] += event.self_cpu_time_total
        shares["Python and starts of operators"] = passed - sum(shares.values())
        products = []
        for event in profiler.key_averages(group_by_input_shape=True):
            if event.key in GROUPS["products"]:
                first = 1 if "addmm" in event.key else 0  # after the summand
                left, right = (torch.rand(shape) for shape in event.input_shapes[first : first + 2])
                if event.key == ONEDNN:
                    right = torch.ops.mkldnn._reorder_linear_weight(right)
                products.append((event.key == ONEDNN, left, right, event.count))

        def multiply(products: list[Any] = products) -> None:
            for i in range(max(count for *_, count in products)):  # in turn: weights leave the caches
                for by_onednn, left, right, count in products:
                    if i < count and by_onednn:
                        torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")
                    elif i < count:
                        left @ right

        times: dict[str, list[float]] = defaultdict(list)
        for _ in range(options.rounds):
            for work in (search, multiply):
                start = time.process_time()
                work()
                times[work.__name__].append(time.process_time() - start)
        whole = median(times["search"])
        name = "greedy" if size == 1 else f"beam {size}"
        per_step = 1e3 * whole / (len(batches) * STEPS)
        bare = median(times["multiply"]) / whole
        rows.append({"search": name, "ms per step": f"{per_step:.1f}", "bare products": f"{bare:.3f}"})
        rows[-1] |= {
            group: f"{shares[group] / passed:.3f}"
            for group in (*GROUPS, *sorted(shares.keys() - GROUPS.keys()))
        }
    print_table(rows, f"{options.batches} batches of 64 sentences × {STEPS} steps, one thread", options.csv)


if __name__ == "__main__":
    main()
