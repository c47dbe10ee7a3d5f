"""`attnlab bench [OVERRIDE ...]`: how fast a configuration trains and decodes, and how much faster it could.

Everything that is timed takes turns, batch by batch, and so does the matrix product that says what this
machine can do: whatever else the machine is busy with falls on all alike.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from hydra.errors import HydraException
from lightning import seed_everything
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.profiler import ProfilerActivity, profile

from attnlab import build
from attnlab.compose import compose_run, explain
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.tokenizers import symbols
from attnlab.data.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.module import Seq2SeqModule
from attnlab.nn.flops import useful_flops
from attnlab.nn.stepwise import stepwise
from attnlab.runs import environment, write_atomically
from attnlab.schedules import draw_forced
from attnlab.search import beam, greedy
from attnlab.types import PAD, Batch

Item = TypeVar("Item")
Loss = Callable[[Seq2SeqModule, Batch], Tensor]
Work = Callable[[Batch], Any]

LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaGraphLaunch",
)
"""The calls by which a kernel, or a graph of them, is sent to a GPU."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured of one kind of work. Times are seconds a batch, a round each."""

    work: str
    seconds: list[float]
    tokens: float  # source and target tokens a batch, without padding; of a search, those it put out
    flops: float | None = None  # useful operations a batch
    utilisation: float | None = None  # of the peak
    peak_memory: int | None = None  # bytes that the largest batch needs beside weights and optimizer
    launches: int | None = None  # of kernels, for the largest batch, on a GPU
    launches_per_target_step: float | None = None


def main(words: list[str]) -> int:
    """Run the command; returns the exit code."""
    options = _parser().parse_intermixed_args(words)
    build.quieten_lightning()
    try:
        config = compose_run(options.overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error)) from error
    settings = Settings.of(config)
    seed_everything(config.seed, verbose=False)
    if options.lengths:
        source, target = options.lengths
        corpus, vocabularies = random_corpus(source, target, options.vocabulary, options.batches, config)
    else:
        corpus = build.build_corpus(config)
        vocabularies = build.build_vocabularies(config, corpus)
    batches = take_batches(config, corpus, vocabularies, options.batches, settings.device)
    network = build.build_network(config, vocabularies).to(settings.device)
    module = build.build_module(config, network, vocabularies, corpus)

    losses: dict[str, Loss] = {"train": fast_loss}
    if options.against:
        losses[f"train, {options.against}"] = plain_loss
    rows = [*measure_training(module, losses, batches, settings, options.rounds)]
    if not options.no_search:
        rows += measure_search(module, batches, settings, options.rounds)

    console = Console(soft_wrap=True)
    console.print(_table(rows, title=f"{config.name} · {config.variant} · {settings}"))
    console.print(_shape(batches), highlight=False)
    if options.json:
        told = {
            "command": ["attnlab", "bench", *words],
            "settings": {**asdict(settings), "device": str(settings.device)},
            "batches": [_sizes(batch)._asdict() for batch in batches],
            "rows": [asdict(row) for row in rows],
            **environment(),
        }
        write_atomically(Path(options.json), json.dumps(told, indent=2) + "\n")
    return 0


# ------------------------------------------------------------------------------------------- what is run


@dataclass(frozen=True)
class Settings:
    """Where and how the arithmetic is done."""

    device: torch.device
    precision: str
    clip: float | None
    threads: int

    @classmethod
    def of(cls, config: DictConfig) -> Settings:
        """As a trainer of this configuration would have it, on one device."""
        if config.trainer.gradient_clip_algorithm != "norm":
            raise UserError("attnlab bench clips by norm: set trainer.gradient_clip_algorithm=norm")
        gpu = torch.cuda.is_available() and config.trainer.accelerator in ("auto", "gpu", "cuda")
        precision = str(config.trainer.precision)
        if precision not in ("32-true", "bf16-mixed"):
            raise UserError(f"trainer.precision={precision}: attnlab bench measures 32-true and bf16-mixed")
        return cls(
            device=torch.device("cuda" if gpu else "cpu"),
            precision=precision,
            clip=config.trainer.gradient_clip_val,
            threads=torch.get_num_threads(),
        )

    @property
    def dtype(self) -> torch.dtype:
        """Of the matrix products."""
        return torch.bfloat16 if self.precision == "bf16-mixed" else torch.float32

    def arithmetic(self) -> AbstractContextManager[Any]:
        """What Lightning's trainer computes a loss in."""
        mixed = self.precision == "bf16-mixed"
        plugin = MixedPrecision("bf16-mixed", self.device.type) if mixed else Precision()
        return plugin.forward_context()

    def __str__(self) -> str:
        if self.device.type == "cuda":
            return f"{self.precision} · {torch.cuda.get_device_name()}"
        return f"{self.precision} · CPU, {self.threads} threads"


def fast_loss(module: Seq2SeqModule, batch: Batch) -> Tensor:
    """Cross-entropy as the module trains by it."""
    forced = draw_forced(module.teacher_forcing, 0, batch.inputs)
    _, logits, labels = module.decode(batch, forced)
    return F.cross_entropy(logits.float(), labels, label_smoothing=module.label_smoothing)


def plain_loss(module: Seq2SeqModule, batch: Batch) -> Tensor:
    """The same number by the straightforward loop, padding carried along to the end."""
    forced = draw_forced(module.teacher_forcing, 0, batch.inputs)
    logits, _ = stepwise(module.network, batch, forced)
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        batch.labels.flatten(),
        ignore_index=PAD,
        label_smoothing=module.label_smoothing,
    )


def training_step(module: Seq2SeqModule, loss: Loss, settings: Settings) -> Work:
    """Forward, loss, backward, clip, optimizer, on a copy of the module."""
    module = copy.deepcopy(module).train()
    parameters = list(module.network.parameters())
    optimizer = module.make_optimizer(parameters)

    def step(batch: Batch) -> None:
        with settings.arithmetic():
            value = loss(module, batch)
        value.backward()  # type: ignore[no-untyped-call]
        if settings.clip is not None:
            clip_grad_norm_(parameters, settings.clip)
        optimizer.step()
        optimizer.zero_grad()

    return step


def gemm(settings: Settings) -> tuple[Work, float]:
    """The product of two large square matrices by `torch.mm`, and its operations: the peak.

    In fp32 on a CPU that is MKL's. Where oneDNN is faster, which `nn.linear` then uses, more than all of this
    peak can be put to use.
    """
    size = 1024 if settings.device.type == "cpu" else 8192
    a, b = torch.randn(2, size, size, device=settings.device).to(settings.dtype)
    return lambda _: torch.mm(a, b), 2.0 * size**3


# ---------------------------------------------------------------------------------------------- measuring


def take_turns(
    works: Mapping[str, Callable[[Item], Any]], batches: Sequence[Item], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Mean seconds a batch of each work, for each round; a first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        spent: dict[str, list[float]] = {name: [] for name in works}
        for batch in batches:
            for name, work in works.items():
                _wait(device)
                began = time.perf_counter()
                work(batch)
                _wait(device)
                spent[name].append(time.perf_counter() - began)
        for name, seconds in spent.items():
            found[name].append(fmean(seconds))
    return {name: seconds[1:] for name, seconds in found.items()}


class Profile(NamedTuple):
    """What one call took besides time."""

    peak_memory: int  # the most bytes of tensors held at once, over what was held before
    launches: int | None  # of kernels, on a GPU


def profile_once(work: Work, batch: Batch, device: torch.device) -> Profile:
    """Call it once under torch's profiler, which sees every allocation and every launch."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it tells the terminal when it starts and stops
    gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
    with profile(activities=activities, profile_memory=True, acc_events=True) as profiler:
        work(batch)
        _wait(device)
    assert profiler.profiler is not None
    assert profiler.profiler.kineto_results is not None
    events = profiler.profiler.kineto_results.events()
    if gpu:
        launches = sum(event.name() in LAUNCHES for event in events)
        return Profile(torch.cuda.max_memory_allocated(device) - held, launches)
    changes = [
        event.nbytes() for event in sorted(events, key=lambda e: e.start_ns()) if event.name() == "[memory]"
    ]
    return Profile(max(accumulate(changes, initial=0)), None)


def measure_training(
    module: Seq2SeqModule,
    losses: Mapping[str, Loss],
    batches: Sequence[Batch],
    settings: Settings,
    rounds: int,
) -> list[Row]:
    """Full training steps of each loss, beside the machine's peak."""
    steps = {name: training_step(module, loss, settings) for name, loss in losses.items()}
    product, product_flops = gemm(settings)
    times = take_turns({**steps, "matrix product": product}, batches, rounds, settings.device)
    peak = times.pop("matrix product")
    flops = fmean(3 * useful_flops(module.network, batch) for batch in batches)
    largest = max(batches, key=lambda batch: _sizes(batch).padded)
    rows = []
    for name, seconds in times.items():
        taken = profile_once(steps[name], largest, settings.device)
        target_steps = largest.labels.size(1)
        rows.append(
            Row(
                work=name,
                seconds=seconds,
                tokens=fmean(_sizes(batch).tokens for batch in batches),
                flops=flops,
                utilisation=flops / median(seconds) / (product_flops / median(peak)),
                peak_memory=taken.peak_memory,
                launches=taken.launches,
                launches_per_target_step=None if taken.launches is None else taken.launches / target_steps,
            )
        )
    rows.append(Row(work="matrix product", seconds=peak, tokens=0, flops=product_flops, utilisation=1.0))
    return rows


def measure_search(
    module: Seq2SeqModule, batches: Sequence[Batch], settings: Settings, rounds: int
) -> list[Row]:
    """Decoding the batches' sources, greedily and with a beam: of the configured size, or of 5."""
    network = module.network.eval()
    size = module.beam_size if module.beam_size > 1 else 5
    searches: dict[str, Callable[..., Any]] = {
        "greedy": greedy,
        f"beam {size}": partial(beam, size=size, length_penalty=module.length_penalty),
    }
    written = dict.fromkeys(searches, 0.0)

    def work(name: str, batch: Batch) -> None:
        with settings.arithmetic():
            found = searches[name](network, batch, max_length=module.max_length)
        written[name] += sum(len(best[0]) + 1 for best in found.tokens)

    works = {name: partial(work, name) for name in searches}
    times = take_turns(works, batches, rounds, settings.device)
    calls = len(batches) * (rounds + 1)
    return [Row(work=name, seconds=times[name], tokens=written[name] / calls) for name in searches]


# ------------------------------------------------------------------------------------------------ batches


def random_corpus(
    source_length: int, target_length: int, vocabulary: int, batches: int, config: DictConfig
) -> tuple[Corpus, Vocabularies]:
    """Sentences of random tokens, all of the same two lengths, enough to fill the batches asked for."""
    if config.batching.by != "sentences":
        raise UserError("--lengths fills batches of sentences: set batching.by=sentences")
    if source_length < 1 or target_length < 1 or vocabulary < 4:
        raise UserError("--lengths takes two numbers from 1 on, and --vocabulary one from 4 on")
    draw = random.Random(config.seed)

    def sentence(length: int) -> str:
        return " ".join(str(draw.randrange(3, vocabulary)) for _ in range(length))

    pairs = [
        Pair(sentence(source_length), sentence(target_length))
        for _ in range(batches * config.batching.batch_size)
    ]
    tokenizer = symbols(["3"], count=vocabulary - 3)
    return Corpus(train=pairs, val=pairs[:1], test=[]), Vocabularies(tokenizer, tokenizer)


def take_batches(
    config: DictConfig, corpus: Corpus, vocabularies: Vocabularies, count: int, device: torch.device
) -> list[Batch]:
    """The first batches of training, on the device."""
    data = build.build_data(config, corpus, vocabularies)
    data.setup("fit")
    return [batch.to(device) for batch in islice(data.train_dataloader(), count)]


class Sizes(NamedTuple):
    """Of a batch."""

    sentences: int
    source: int  # S
    target: int  # T
    tokens: int  # source and target tokens, without padding
    padded: int  # with it


def _sizes(batch: Batch) -> Sizes:
    (sentences, source), target = batch.source.shape, batch.labels.size(1)
    tokens = int(batch.source_lengths.sum()) + int((batch.labels != PAD).sum())
    return Sizes(sentences, source, target, tokens, sentences * (source + target))


# ------------------------------------------------------------------------------------------------ telling


def _wait(device: torch.device) -> None:
    """Until a GPU is done with what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _table(rows: Sequence[Row], title: str) -> Table:
    columns: dict[str, Callable[[Row], str]] = {
        "median ms": lambda row: f"{1e3 * median(row.seconds):.2f}",
        "best ms": lambda row: f"{1e3 * min(row.seconds):.2f}",
        "tokens/s": lambda row: f"{row.tokens / median(row.seconds):,.0f}" if row.tokens else "–",
        "GFLOP": lambda row: "–" if row.flops is None else f"{row.flops / 1e9:.2f}",
        "GFLOP/s": lambda row: "–" if row.flops is None else f"{row.flops / median(row.seconds) / 1e9:.0f}",
        "of peak": lambda row: "–" if row.utilisation is None else f"{row.utilisation:.1%}",
        "memory MB": lambda row: "–" if row.peak_memory is None else f"{row.peak_memory / 1e6:.1f}",
        "launches": lambda row: "–" if row.launches is None else f"{row.launches}",
        "a target step": lambda row: "–" if row.launches is None else f"{row.launches_per_target_step:.1f}",
    }
    if all(row.launches is None for row in rows):
        del columns["launches"], columns["a target step"]
    table = Table("a batch", title=title)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.work, *(cell(row) for cell in columns.values()))
    return table


def _shape(batches: Sequence[Batch]) -> str:
    sizes = [_sizes(batch) for batch in batches]
    real = sum(size.tokens for size in sizes) / sum(size.padded for size in sizes)
    longest = (max(size.source for size in sizes), max(size.target for size in sizes))
    return (
        f"{len(batches)} batches of {fmean(size.sentences for size in sizes):.1f} sentences, "
        f"S ≤ {longest[0]}, T ≤ {longest[1]}, {real:.0%} of it no padding"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnlab bench", description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "overrides", metavar="OVERRIDE", nargs="*", help="settings, as for attnlab train: attention=dot"
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds over the batches (default: 5)")
    parser.add_argument("--batches", type=int, default=10, help="batches a round (default: 10)")
    parser.add_argument(
        "--lengths",
        type=int,
        nargs=2,
        metavar=("S", "T"),
        help="random sentences of these lengths instead of the configured data",
    )
    parser.add_argument(
        "--vocabulary", type=int, default=8004, metavar="V", help="of random sentences (default: 8004)"
    )
    parser.add_argument(
        "--against", choices=("plain",), help="time the straightforward loop over the single step beside it"
    )
    parser.add_argument("--no-search", action="store_true", help="time training alone")
    parser.add_argument("--json", metavar="FILE", help="write everything measured there")
    return parser
