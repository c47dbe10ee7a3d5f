"""Measurements of a GPU: equality with the CPU, speed at GNMT's sizes and its bounds, small networks.

    python gpu_report.py --vocabulary 32000 --rounds 2 --batches 3 --json gpu.json

Every system is trained by the fused loops, by the published loop over single steps, and beside them torch's
LSTM without attention, whose kernels on a GPU are cuDNN's: an upper bound of what a recurrent decoder can
reach. All alternate batch by batch with a matrix product that measures the peak. An interrupted report keeps
the sections that are done.
"""

import argparse
import copy
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import timing
import torch
import torch.nn.functional as F
from bench import measurements_table
from lightning import seed_everything
from omegaconf import DictConfig
from rich.table import Table
from timing import Row, Settings
from torch import Tensor, nn

from attnlab.config.compose import compose_run
from attnlab.config.options import options_of
from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.fast import make_plain
from attnlab.files.terminal import print_line, print_table
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training import build, components
from attnlab.training.environment import environment
from attnlab.training.module import Seq2SeqModule
from attnlab.types import PAD, Batch

sys.path.append(str(Path(__file__).parents[1] / "parts"))  # which contains attnlab_parts

SIZES = [
    "encoder=recurrent",
    "encoder.size=512",
    "embedding.size=1024",
    "attention=additive",
    "attention_size=1024",
    "decoder.size=1024",
    "trainer.precision=bf16-mixed",
]
SYSTEMS = {
    "gnmt": [
        *(*SIZES, "decoder=luong", "~decoder.input_feeding", "encoder.layers=4", "decoder.layers=4"),
        "decoder._target_=attnlab_parts.gnmt.GNMTDecoder",
    ],
    "bahdanau": [*SIZES, "decoder=bahdanau"],
    "luong": [*SIZES, "decoder=luong", "decoder.input_feeding=true"],
}
"""Settings of each system."""

BATCH_SIZES = (128, 512, 2048)
"""NVIDIA measured training of GNMT v2 with batches of 128 and greedy search with 512; 2,048 fill the GPU."""

BEAM = 5

GROUPS = ("attention", "encoder", "decoder")
"""Groups whose options are compared with the CPU, each with the defaults of the others."""


class Difference(NamedTuple):
    """Differences between the results of a GPU and those of the CPU, in fp32."""

    loss: float  # relative
    gradient: float | None  # ‖g - g_CPU‖ / ‖g_CPU‖ over all parameters; None where training draws noise
    greedy: bool  # whether all outputs of greedy search are equal
    beam: bool  # and those of a beam of 5


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


def parity_settings() -> Iterator[str]:
    """Yield the options that are compared with the CPU, as settings."""
    for group in GROUPS:
        for option in options_of(group):
            yield f"{group}={option}"


def compare_with_cpu(config: DictConfig, device: torch.device) -> Difference:
    """Compare a training step and the searches of one batch, in fp32 without TF32, and without dropout."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return _compare(config, device)


def _compare(config: DictConfig, device: torch.device) -> Difference:
    module, (batch,), _ = _prepare(config, torch.device("cpu"), lengths=(9, 6), vocabulary=30, batches=1)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    other = copy.deepcopy(module).to(device)
    loss, gradient = _loss_and_gradient(module, batch, seed=0)
    other_loss, other_gradient = _loss_and_gradient(other, batch.to(device), seed=0)
    draws_noise = _loss_and_gradient(module, batch, seed=1)[0] != loss
    difference = float((gradient - other_gradient).norm() / gradient.norm())
    outputs: list[list[Any]] = []
    for compared, sources in ((module, batch), (other, batch.to(device))):
        network: Any = compared.network.eval()
        search = (partial(greedy, max_length=8), partial(beam, size=BEAM, max_length=8))
        outputs.append([find(network, sources).tokens for find in search])
    return Difference(
        loss=abs(other_loss / loss - 1),
        gradient=None if draws_noise else difference,
        greedy=outputs[0][0] == outputs[1][0],
        beam=outputs[0][1] == outputs[1][1],
    )


def _loss_and_gradient(module: Seq2SeqModule, batch: Batch, seed: int) -> tuple[float, Tensor]:
    """Return the loss of a training step and its gradient of all parameters, in one vector."""
    torch.manual_seed(seed)
    module.train().zero_grad()
    loss = timing.fast_loss(module, batch)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item(), torch.cat([p.grad.flatten().cpu() for p in module.parameters() if p.grad is not None])


def measure_system(
    config: DictConfig,
    *,
    lengths: tuple[int, int],
    vocabulary: int,
    batches: int,
    rounds: int,
    published: bool = True,  # measure the published loop, too
) -> list[Row]:
    """Measure training and search of one system on random sentences, on the device of its trainer."""
    module, data, settings = _prepare(config, None, lengths=lengths, vocabulary=vocabulary, batches=batches)
    return [
        *_training(module, data, settings, rounds, published=published),
        *_search(module, data, settings, rounds, published=published),
    ]


def measure_processes(config: DictConfig, count: int, **sizes: Any) -> list[float]:
    """Return the tokens per second of each of `count` processes that train a system at the same time.

    The other arguments are those of `measure_system`.
    """
    context = get_context("spawn")
    start, results = context.Barrier(count), context.SimpleQueue()
    processes = [
        context.Process(target=_train_in_process, args=(config, start, results, sizes), daemon=True)
        for _ in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [results.get() for _ in processes if not results.empty()]


def _train_in_process(config: DictConfig, start: Barrier, results: SimpleQueue[float], sizes: Any) -> None:
    rounds = sizes.pop("rounds")
    module, data, settings = _prepare(config, None, **sizes)
    step = timing.training_step(module, timing.fast_loss, settings)
    for batch in data * 3:
        step(batch)
    start.wait()
    times = timing.time_interleaved({"train": step}, data, rounds, settings.device)["train"]
    results.put(timing.sizes_of(data[0]).tokens / median(times))


def _prepare(
    config: DictConfig,
    device: torch.device | None,
    *,
    lengths: tuple[int, int],
    vocabulary: int,
    batches: int,
) -> tuple[Seq2SeqModule, list[Batch], Settings]:
    """Return a system and batches of random sentences, on a device or that of the trainer."""
    seed_everything(config.seed, verbose=False)
    settings = Settings.of(config)
    device = device or settings.device
    corpus, vocabularies = timing.random_corpus(*lengths, vocabulary, batches, config)
    data = timing.take_batches(config, corpus, vocabularies, batches, device)
    network = build.build_network(config, vocabularies).to(device)
    return components.build_module(config, network, vocabularies, corpus), data, settings


def _training(
    module: Seq2SeqModule, batches: Sequence[Batch], settings: Settings, rounds: int, *, published: bool
) -> list[Row]:
    bound: Any = copy.deepcopy(module)
    bound.network = LSTMs(bound.network).to(settings.device)
    lstms = timing.training_step(bound, lambda module, batch: module.network(batch), settings)
    return timing.measure_training(
        module,
        {
            "train, fused": timing.fast_loss,
            **({"train, published loop": timing.plain_loss} if published else {}),
        },
        batches,
        settings,
        rounds,
        bounds={"train, torch's LSTMs, no attention": lstms},
    )


def _search(
    module: Seq2SeqModule, batches: Sequence[Batch], settings: Settings, rounds: int, *, published: bool
) -> list[Row]:
    """Measure greedy search and a beam, whose outputs all have the maximum length or end before."""
    searches: dict[str, timing.Search] = {}
    length = module.translator.max_length
    for path in ("fused", *(["published loop"] if published else [])):
        network: Any = timing.copy_of(module.network).eval()
        if path == "published loop":
            make_plain(network)
        searches[f"greedy, {path}"] = partial(greedy, network, max_length=length)
        searches[f"beam {BEAM}, {path}"] = partial(beam, network, size=BEAM, max_length=length)

    def work(name: str, batch: Batch) -> None:
        with settings.arithmetic():
            searches[name](batch)

    rows = timing.time_searches(searches, batches, settings, rounds)
    return [timing.profiled(row, partial(work, row.work), batches[0], length + 1, settings) for row in rows]


def parity_table(differences: Mapping[str, Difference], title: str) -> Table:
    table = Table("setting", title=title)
    for name in ("loss", "gradient"):
        table.add_column(f"difference of the {name}", justify="right")
    table.add_column("equal outputs")
    for setting, (loss, gradient, *searches) in differences.items():
        equal = [name for name, same in zip(("greedy", "beam"), searches, strict=True) if same]
        difference = "draws noise" if gradient is None else f"{gradient:.1e}"
        table.add_row(setting, f"{loss:.1e}", difference, " and ".join(equal) or "none")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a GPU.")
    parser.add_argument("overrides", nargs="*", help="settings of the systems of GNMT's sizes")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds over the batches")
    parser.add_argument("--batches", type=int, default=10, help="batches per round")
    parser.add_argument("--lengths", type=int, nargs=2, default=(32, 32), metavar=("S", "T"))
    parser.add_argument("--vocabulary", type=int, default=8004)
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu_report.py: torch finds no CUDA device on this machine. Run it on one with a GPU")
    card = torch.cuda.get_device_name()
    report: dict[str, Any] = {"command": sys.argv, **environment()}

    def save(section: str, measured: object) -> None:
        report[section] = measured
        if options.json:
            options.json.write_text(json.dumps(report, indent=2))

    differences = {
        setting: compare_with_cpu(
            compose_run([setting, "trainer.precision=32-true", "batching.batch_size=7"]), torch.device("cuda")
        )
        for setting in parity_settings()
    }
    print_table(parity_table(differences, title=f"{card} in fp32 against the CPU"))
    save("parity", {setting: found._asdict() for setting, found in differences.items()})
    sizes = {"lengths": options.lengths, "vocabulary": options.vocabulary, "rounds": options.rounds}
    small = {**sizes, "lengths": (10, 10), "vocabulary": 24, "batches": options.batches}
    rows = measure_system(compose_run(["trainer.precision=32-true", "search.max_length=12"]), **small)
    print_table(measurements_table(rows, title=f"the default system in fp32 · {card}"))
    save("small", [asdict(row) for row in rows])
    config = compose_run(["trainer.precision=32-true"])
    processes = {count: measure_processes(config, count, **small) for count in (1, 2)}
    for count, found in processes.items():
        print_line(f"{count} processes train the default system: {sum(found):,.0f} tokens/s together")
    save("processes", processes)
    systems = {}
    for size, name in product(BATCH_SIZES, SYSTEMS):
        limits = [f"batching.batch_size={size}", f"search.max_length={options.lengths[1]}"]
        title = f"{name}, batches of {size}"
        try:
            rows = measure_system(
                compose_run([*SYSTEMS[name], *limits, *options.overrides]),
                batches=options.batches,
                published=size == min(BATCH_SIZES),
                **sizes,
            )
        except torch.OutOfMemoryError:
            print_line(f"{title}: {card} has not enough memory")
            continue
        systems[title] = [asdict(row) for row in rows]
        print_table(measurements_table(rows, title=f"{title} · {card}"))
        save("systems", systems)


if __name__ == "__main__":
    main()
