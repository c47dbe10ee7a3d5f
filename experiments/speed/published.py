"""Speed of two published training loops (CoNaLa and sequence reversal) and of attnlab on the same data.

    python published.py conala data.path=conala-train.json
    python published.py reverse_published batching.bucket_by_length=true

The loops alternate step by step. Prints, and writes to --csv, the median seconds per step of each, their
ratios, and the share of the peak speed of matrix products. The published loops use random batches, attnlab
those of the settings.
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import timing
import torch
import torch.nn.functional as F
from flops import useful_flops
from tables import precisions, print_table
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnlab.config.compose import compose_run
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components
from attnlab.types import PAD, Batch


class Attention(nn.Module):
    """Additive attention that projects the whole memory again at every target step."""

    def __init__(self, memory_size: int, query_size: int, size: int, *, bias: bool) -> None:
        super().__init__()
        self.key = nn.Linear(memory_size, size, bias=bias)
        self.query = nn.Linear(query_size, size, bias=bias)
        self.energy = nn.Linear(size, 1, bias=bias)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        scores = self.energy(torch.tanh(self.key(memory) + self.query(query)[:, None]))[..., 0]  # [B, S]
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)  # [B, S]
        return torch.bmm(weights[:, None], memory)  # [B, 1, D]


class Conala(nn.Module):
    """CoNaLa system: padded encoder, nn.LSTM of length 1 at each step, logits copied into a tensor."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary_size, 256)
        self.encoder = nn.LSTM(256, 512, num_layers=2, bidirectional=True, batch_first=True)
        self.hidden = nn.Linear(1024, 512)
        self.cell = nn.Linear(1024, 512)
        self.target = nn.Embedding(vocabulary_size, 256)
        self.attention = Attention(1024, 512, 512, bias=False)
        self.decoder = nn.LSTM(256 + 1024, 512, num_layers=2, batch_first=True)
        self.output = nn.Linear(512, vocabulary_size)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""
        mask = batch.source != PAD  # [B, S]
        memory, (hidden, cell) = self.encoder(self.source(batch.source))  # [B, S, D]
        h = self.hidden(torch.cat([hidden[-2], hidden[-1]], dim=-1)).repeat(2, 1, 1)  # [2, B, H]
        c = self.cell(torch.cat([cell[-2], cell[-1]], dim=-1)).repeat(2, 1, 1)  # [2, B, H]
        size, steps = batch.inputs.shape
        logits = torch.zeros(size, steps, self.output.out_features)  # [B, T, V]
        for step in range(steps):
            embedded = self.target(batch.inputs[:, step : step + 1])  # [B, 1, E]
            context = self.attention(h[-1], memory, mask)  # [B, 1, D]
            states, (h, c) = self.decoder(torch.cat([embedded, context], dim=-1), (h, c))
            logits[:, step] = self.output(states[:, 0])
        return logits


class Reverse(nn.Module):
    """Reversal system: packed encoder, nn.LSTM of length 1 and random teacher forcing at each step."""

    def __init__(self, vocabulary_size: int) -> None:
        super().__init__()
        self.source = nn.Embedding(vocabulary_size, 64, padding_idx=PAD)
        self.encoder = nn.LSTM(64, 128, bidirectional=True, batch_first=True)
        self.target = nn.Embedding(vocabulary_size, 64, padding_idx=PAD)
        self.attention = Attention(256, 128, 64, bias=True)
        self.decoder = nn.LSTM(64 + 256, 128, batch_first=True)
        self.dropout = nn.Dropout(0.4)
        self.output = nn.Linear(256 + 128, vocabulary_size)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""
        mask = batch.source != PAD  # [B, S]
        packed = pack_padded_sequence(
            self.source(batch.source), batch.source_lengths, batch_first=True, enforce_sorted=False
        )
        memory, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)  # [B, S, D]
        h = c = memory.new_zeros(1, len(mask), 128)  # [1, B, H]
        logits, read = [], batch.inputs[:, :1]
        for step in range(batch.inputs.size(1)):
            context = self.attention(h[-1], memory, mask)  # [B, 1, D]
            states, (h, c) = self.decoder(torch.cat([self.target(read), context], dim=-1), (h, c))
            logits.append(self.output(self.dropout(torch.cat([context, states], dim=-1)[:, 0])))  # [B, V]
            forced = step + 1 < batch.inputs.size(1) and random.random() < 0.5
            read = batch.inputs[:, step + 1 : step + 2] if forced else logits[-1].argmax(dim=-1)[:, None]
        return torch.stack(logits, dim=1)


PUBLISHED = {
    "conala": (Conala, lambda parameters: torch.optim.SGD(parameters, lr=0.7)),
    "reverse_published": (Reverse, lambda parameters: torch.optim.Adam(parameters, lr=1e-3)),
}


def published_step(system: str, vocabulary_size: int, settings: timing.Settings) -> Callable[[Batch], None]:
    """Return a training step of the published system, without any reduction of padding."""
    make_network, make_optimizer = PUBLISHED[system]
    network = make_network(vocabulary_size).train()
    optimizer = make_optimizer(network.parameters())

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        with settings.arithmetic():
            logits = network(batch)
        loss = F.cross_entropy(logits.flatten(0, 1).float(), batch.labels.flatten(), ignore_index=PAD)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return step


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("system", choices=PUBLISHED)
    parser.add_argument("overrides", nargs="*", metavar="OVERRIDE", help="settings of attnlab train")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds per loop")
    parser.add_argument("--batches", type=int, default=40, help="largest number of batches per round")
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    overrides = [f"experiment={options.system}", "trainer.accelerator=cpu", *options.overrides]
    config = compose_run(overrides)
    at_random = compose_run([*overrides, "batching.bucket_by_length=false"])
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    settings = timing.Settings.of(config)
    ours, theirs = (
        timing.take_batches(chosen, corpus, vocabularies, options.batches, settings.device)
        for chosen in (config, at_random)
    )
    module = components.build_module(config, build.build_network(config, vocabularies), vocabularies, corpus)
    original = published_step(options.system, vocabularies.target.size, settings)
    works = {"published": lambda i: original(theirs[i])}
    peaks = {"published": "matrix product, fp32"}
    for name, precision in precisions().items():
        chosen = replace(settings, precision=precision)
        step = timing.training_step(module, timing.fast_loss, chosen)
        product, product_flops = timing.gemm(chosen)
        peaks[f"attnlab, {name}"] = f"matrix product, {name}"
        works[f"attnlab, {name}"] = partial(lambda work, i: work(ours[i]), step)
        works[f"matrix product, {name}"] = partial(lambda work, i: work(ours[i]), product)
    times = timing.time_interleaved(works, range(len(ours)), options.rounds, settings.device)
    flops = {
        work: fmean(
            3 * useful_flops(module.network, batch) for batch in (theirs if work == "published" else ours)
        )
        for work in peaks
    }
    rows = []
    for work, needed in flops.items():
        peak = product_flops / median(times[peaks[work]])
        rows.append(
            {
                "work": work,
                "ms per step": f"{1e3 * median(times[work]):.2f}",
                "best": f"{1e3 * min(times[work]):.2f}",
                "speed": f"{median(times['published']) / median(times[work]):.2f}",
                "of peak": f"{needed / median(times[work]) / peak:.3f}",
                "GFLOP/s": f"{peak / 1e9:.0f}",
            }
        )
    title = f"{options.system} · {len(ours)} batches · {settings.threads} threads · {options.rounds} rounds"
    print_table(rows, title, options.csv)


if __name__ == "__main__":
    main()
