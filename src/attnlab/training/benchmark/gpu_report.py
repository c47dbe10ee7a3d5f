"""All measurements of a GPU in one run: training and search at GNMT's sizes, and their bounds.

Every system is trained by the fused loops, by the published loop over single steps, and beside them torch's
LSTM without attention, whose kernels on a GPU are cuDNN's: an upper bound of what a recurrent decoder can
reach. All alternate batch by batch with a matrix product that measures the peak.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from lightning import seed_everything
from omegaconf import DictConfig
from torch import Tensor, nn

from attnlab.config import build
from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.fast import make_plain
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training import components
from attnlab.training.benchmark import timing
from attnlab.training.benchmark.timing import Row, Settings
from attnlab.training.module import Seq2SeqModule
from attnlab.types import PAD, Batch

SIZES = [
    "encoder=recurrent",
    "encoder.size=512",
    "embedding.size=1024",
    "attention=additive",
    "attention_size=1024",
    "decoder.size=1024",
    "batching.batch_size=128",
    "trainer.precision=bf16-mixed",
]
SYSTEMS = {
    "gnmt": [*SIZES, "decoder=gnmt", "encoder.layers=4", "decoder.layers=4"],
    "bahdanau": [*SIZES, "decoder=bahdanau"],
    "luong": [*SIZES, "decoder=luong", "decoder.input_feeding=true"],
}
"""Settings of each system."""

BEAM = 5


class LSTMs(nn.Module):
    """Torch's LSTMs over sources and targets and a product with the vocabulary, without attention."""

    def __init__(self, network: Seq2Seq) -> None:
        super().__init__()
        self.source_embedding = copy.deepcopy(network.source_embedding.table)
        self.target_embedding = copy.deepcopy(network.target_embedding.table)
        decoder, encoder = network.decoder.state_shape, network.encoder
        self.encoder = nn.LSTM(
            self.source_embedding.embedding_dim,
            encoder.memory_size // encoder.directions,
            num_layers=encoder.layers,
            bidirectional=encoder.directions == 2,
            batch_first=True,
        )
        width = self.target_embedding.embedding_dim
        self.decoder = nn.LSTM(width, decoder.size, num_layers=decoder.layers, batch_first=True)
        self.output = nn.Linear(decoder.size, self.target_embedding.num_embeddings)

    def forward(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of a batch, a scalar; the encoder's last output starts no decoder."""
        memory, _ = self.encoder(self.source_embedding(batch.source))  # [B, S, D]
        states, _ = self.decoder(self.target_embedding(batch.inputs))  # [B, T, H]
        logits = self.output(states)  # [B, T, V]
        loss = F.cross_entropy(logits.float().flatten(0, 1), batch.labels.flatten(), ignore_index=PAD)
        total: Tensor = loss + 0 * memory.sum()  # the encoder is trained, too
        return total


def measure_system(
    config: DictConfig, *, lengths: tuple[int, int], vocabulary: int, batches: int, rounds: int
) -> list[Row]:
    """Measure training and search of one system on random sentences, on the device of its trainer."""
    seed_everything(config.seed, verbose=False)
    settings = Settings.of(config)
    corpus, vocabularies = timing.random_corpus(*lengths, vocabulary, batches, config)
    data = timing.take_batches(config, corpus, vocabularies, batches, settings.device)
    network = build.build_network(config, vocabularies).to(settings.device)
    module = components.build_module(config, network, vocabularies, corpus)
    return [*_training(module, data, settings, rounds), *_search(module, data, settings, rounds)]


def _training(module: Seq2SeqModule, batches: Sequence[Batch], settings: Settings, rounds: int) -> list[Row]:
    bound: Any = copy.deepcopy(module)
    bound.network = LSTMs(bound.network).to(settings.device)
    lstms = timing.training_step(bound, lambda module, batch: module.network(batch), settings)
    return timing.measure_training(
        module,
        {"train, fused": timing.fast_loss, "train, published loop": timing.plain_loss},
        batches,
        settings,
        rounds,
        bounds={"train, torch's LSTMs, no attention": lstms},
    )


def _search(module: Seq2SeqModule, batches: Sequence[Batch], settings: Settings, rounds: int) -> list[Row]:
    """Measure greedy search and a beam, whose outputs all have the maximum length or end before."""
    searches: dict[str, timing.Search] = {}
    length = module.translator.max_length
    for path in ("fused", "published loop"):
        network: Any = copy.deepcopy(module.network).eval()
        if path == "published loop":
            make_plain(network)
        searches[f"greedy, {path}"] = partial(greedy, network, max_length=length)
        searches[f"beam {BEAM}, {path}"] = partial(beam, network, size=BEAM, max_length=length)

    def work(name: str, batch: Batch) -> None:
        with settings.arithmetic():
            searches[name](batch)

    rows = timing.time_searches(searches, batches, settings, rounds)
    return [timing.profiled(row, partial(work, row.work), batches[0], length + 1, settings) for row in rows]
