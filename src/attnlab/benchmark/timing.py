"""How long training steps and searches take, timed in turns.

Everything that is timed takes turns, batch by batch, and so does the matrix product that says what this
machine can do: whatever else the machine is busy with falls on all alike.
"""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

import torch
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from omegaconf import DictConfig
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.profiler import ProfilerActivity, profile

from attnlab.benchmark.flops import useful_flops
from attnlab.benchmark.stepwise import stepwise
from attnlab.config import build
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.search import beam, greedy
from attnlab.errors import UserError
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training.module import Seq2SeqModule
from attnlab.training.teacher_forcing import sample_forced
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
    forced = sample_forced(module.teacher_forcing, 0, batch.inputs)
    _, logits, labels = module.teacher_forced(batch, forced)
    return module.cross_entropy(logits, labels)


def plain_loss(module: Seq2SeqModule, batch: Batch) -> Tensor:
    """The same number by the straightforward loop, padding carried along to the end."""
    forced = sample_forced(module.teacher_forcing, 0, batch.inputs)
    logits, _ = stepwise(module.network, batch, forced)
    return module.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())


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
    network = module.network
    assert isinstance(network, Seq2Seq)
    flops = fmean(3 * useful_flops(network, batch) for batch in batches)
    largest = max(batches, key=lambda batch: sizes_of(batch).padded)
    rows = []
    for name, seconds in times.items():
        taken = profile_once(steps[name], largest, settings.device)
        target_steps = largest.labels.size(1)
        rows.append(
            Row(
                work=name,
                seconds=seconds,
                tokens=fmean(sizes_of(batch).tokens for batch in batches),
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
    translator = module.translator
    size = translator.beam_size if translator.beam_size > 1 else 5
    searches: dict[str, Callable[..., Any]] = {
        "greedy": greedy,
        f"beam {size}": partial(beam, size=size, length_penalty=translator.length_penalty),
    }
    written = dict.fromkeys(searches, 0.0)

    def work(name: str, batch: Batch) -> None:
        with settings.arithmetic():
            found = searches[name](network, batch, max_length=translator.max_length)
        written[name] += sum(len(best[0]) + 1 for best in found.tokens)

    works = {name: partial(work, name) for name in searches}
    times = take_turns(works, batches, rounds, settings.device)
    calls = len(batches) * (rounds + 1)
    return [Row(work=name, seconds=times[name], tokens=written[name] / calls) for name in searches]


def random_corpus(
    source_length: int, target_length: int, vocabulary: int, batches: int, config: DictConfig
) -> tuple[Corpus, Vocabularies]:
    """Sentences of random tokens, all of the same two lengths, enough to fill the batches asked for."""
    if config.batching.batch_type != "sentences":
        raise UserError("--lengths fills batches of sentences: set batching.batch_type=sentences")
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


def sizes_of(batch: Batch) -> Sizes:
    """Count them."""
    (sentences, source), target = batch.source.shape, batch.labels.size(1)
    tokens = int(batch.source_lengths.sum()) + int((batch.labels != PAD).sum())
    return Sizes(sentences, source, target, tokens, sentences * (source + target))


def _wait(device: torch.device) -> None:
    """Until a GPU is done with what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
