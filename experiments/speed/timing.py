"""Timing of training steps and searches.

The measured functions, and a matrix product that measures the peak of the machine, are interleaved batch by
batch, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import copy
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from flops import useful_flops
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from omegaconf import DictConfig
from stepwise import stepwise
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.profiler import ProfilerActivity, profile

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.decoding.beam import beam
from attnlab.decoding.search import greedy
from attnlab.errors import UserError
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training.components import build_data
from attnlab.training.hardware import choose_precision
from attnlab.training.module import Seq2SeqModule
from attnlab.training.teacher_forcing import sample_forced
from attnlab.types import PAD, Batch, Hypotheses

Item = TypeVar("Item")
Copied = TypeVar("Copied", bound=nn.Module)
Loss = Callable[[Seq2SeqModule, Batch], Tensor]
Work = Callable[[Batch], Any]
Search = Callable[[Batch], Hypotheses]

LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")
"""CUDA calls that launch a kernel."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Measurements of one kind of work. Times are seconds per batch, one for each round."""

    work: str
    seconds: list[float]
    tokens: float  # source and target tokens per batch, without padding; output tokens for a search
    flops: float | None = None  # useful operations per batch
    utilisation: float | None = None  # share of the peak
    peak_memory: int | None = None  # bytes for the largest batch, without weights and optimizer
    launches: int | None = None  # kernel launches for the largest batch, on a GPU
    launches_per_target_step: float | None = None


@dataclass(frozen=True)
class Settings:
    """Device and precision of the measurements."""

    device: torch.device
    precision: str
    clip: float | None
    threads: int

    @classmethod
    def of(cls, config: DictConfig) -> Settings:
        """Return the settings of a trainer with this configuration, on one device."""
        if config.trainer.get("gradient_clip_algorithm") not in (None, "norm"):
            raise UserError(
                "these scripts clip gradients by norm only: set trainer.gradient_clip_algorithm=norm"
            )
        gpu = torch.cuda.is_available() and config.trainer.accelerator in ("auto", "gpu", "cuda")
        precision = choose_precision(config.trainer)
        if precision not in ("32-true", "bf16-mixed"):
            raise UserError(f"trainer.precision={precision}: these scripts measure 32-true and bf16-mixed")
        return cls(
            device=torch.device("cuda" if gpu else "cpu"),
            precision=precision,
            clip=config.trainer.gradient_clip_val,
            threads=torch.get_num_threads(),
        )

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the matrix products."""
        return torch.bfloat16 if self.precision == "bf16-mixed" else torch.float32

    def arithmetic(self) -> AbstractContextManager[Any]:
        """Return the precision context in which Lightning computes the loss."""
        mixed = self.precision == "bf16-mixed"
        plugin = MixedPrecision("bf16-mixed", self.device.type) if mixed else Precision()
        return plugin.forward_context()

    def __str__(self) -> str:
        if self.device.type == "cuda":
            return f"{self.precision} · {torch.cuda.get_device_name()}"
        return f"{self.precision} · CPU, {self.threads} threads"


def fast_loss(module: Seq2SeqModule, batch: Batch) -> Tensor:
    """Compute the cross-entropy as in training; a scalar."""
    forced = sample_forced(module.teacher_forcing, 0, batch.inputs)
    return module.teacher_forced(batch, forced).cross_entropy


def plain_loss(module: Seq2SeqModule, batch: Batch) -> Tensor:
    """Compute the same cross-entropy step by step, with padding processed to the end; a scalar."""
    forced = sample_forced(module.teacher_forcing, 0, batch.inputs)
    logits, _ = stepwise(module.network, batch, forced)
    return F.cross_entropy(logits.flatten(0, 1).float(), batch.labels.flatten(), ignore_index=PAD)


def training_step(module: Seq2SeqModule, loss: Loss, settings: Settings) -> Work:
    """Return a function that runs one training step on a copy of the module."""
    module = copy_of(module).train()
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


def copy_of(module: Copied) -> Copied:
    """Copy a module; the weights of its recurrent networks stand in one block, as a GPU needs them."""
    copied = copy.deepcopy(module)
    for part in copied.modules():
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()
    return copied


def gemm(settings: Settings) -> tuple[Work, float]:
    """Return the product of two large square matrices by `torch.mm`, and its operations: the peak.

    In fp32 on a CPU this is MKL's peak. Where oneDNN, which `attnlab.fast` uses, is faster, the
    utilisation can exceed 100 %.
    """
    size = 1024 if settings.device.type == "cpu" else 8192
    a, b = torch.randn(2, size, size, device=settings.device).to(settings.dtype)
    return lambda _: torch.mm(a, b), 2.0 * size**3


def time_interleaved(
    works: Mapping[str, Callable[[Item], Any]], batches: Sequence[Item], rounds: int, device: torch.device
) -> dict[str, list[float]]:
    """Return the mean seconds per batch of each work in each round, after one warm-up round."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        spent: dict[str, list[float]] = {name: [] for name in works}
        for batch in batches:
            for name, work in works.items():
                _wait(device)
                start = time.perf_counter()
                work(batch)
                _wait(device)
                spent[name].append(time.perf_counter() - start)
        for name, seconds in spent.items():
            times[name].append(fmean(seconds))
    return {name: seconds[1:] for name, seconds in times.items()}


class Profile(NamedTuple):
    """Memory and kernel launches of one call."""

    peak_memory: int  # largest number of bytes allocated at once during the call
    launches: int | None  # kernel launches, on a GPU


def profile_once(work: Work, batch: Batch, device: torch.device) -> Profile:
    """Call a function once under torch's profiler, which records allocations and kernel launches."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise it prints to the terminal
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
    bounds: Mapping[str, Work] | None = None,
) -> list[Row]:
    """Measure training steps with each loss, steps of other networks, and the machine's peak."""
    network = module.network
    assert isinstance(network, Seq2Seq)
    flops = fmean(3 * useful_flops(network, batch) for batch in batches)
    steps = {name: training_step(module, loss, settings) for name, loss in losses.items()} | {
        **(bounds or {})
    }
    product, product_flops = gemm(settings)
    times = time_interleaved({**steps, "matrix product": product}, batches, rounds, settings.device)
    peak = product_flops / median(times["matrix product"])
    tokens = fmean(sizes_of(batch).tokens for batch in batches)
    largest = max(batches, key=lambda batch: sizes_of(batch).padded)
    rows = []
    for name, step in steps.items():
        row = Row(work=name, seconds=times[name], tokens=tokens)
        if name in losses:
            row = replace(row, flops=flops, utilisation=flops / median(row.seconds) / peak)
        rows.append(profiled(row, step, largest, largest.labels.size(1), settings))
    peak_row = Row(work="matrix product", seconds=times["matrix product"], tokens=0, flops=product_flops)
    return [*rows, replace(peak_row, utilisation=1.0)]


def profiled(row: Row, work: Work, batch: Batch, steps: int, settings: Settings) -> Row:
    """Add memory and kernel launches of one call, which has this many target steps."""
    peak_memory, launches = profile_once(work, batch, settings.device)
    per_step = None if launches is None else launches / steps
    return replace(row, peak_memory=peak_memory, launches=launches, launches_per_target_step=per_step)


def measure_search(
    module: Seq2SeqModule, batches: Sequence[Batch], settings: Settings, rounds: int
) -> list[Row]:
    """Measure greedy and beam search over the batches, with the configured beam size, or 5."""
    network = module.network.eval()
    translator = module.translator
    size, length = translator.beam_size if translator.beam_size > 1 else 5, translator.max_length
    searches: dict[str, Search] = {
        "greedy": partial(greedy, network, max_length=length),
        f"beam {size}": partial(
            beam, network, size=size, max_length=length, length_penalty=translator.length_penalty
        ),
    }
    return time_searches(searches, batches, settings, rounds)


def time_searches(
    searches: Mapping[str, Search], batches: Sequence[Batch], settings: Settings, rounds: int
) -> list[Row]:
    """Measure searches; the tokens of a row are the mean number that a batch yields, with `<eos>`."""
    written = dict.fromkeys(searches, 0.0)

    def work(name: str, batch: Batch) -> None:
        with settings.arithmetic():
            hypotheses = searches[name](batch)
        written[name] += sum(len(best[0]) + 1 for best in hypotheses.tokens)

    works = {name: partial(work, name) for name in searches}
    times = time_interleaved(works, batches, rounds, settings.device)
    calls = len(batches) * (rounds + 1)
    return [Row(work=name, seconds=times[name], tokens=written[name] / calls) for name in searches]


def random_corpus(
    source_length: int, target_length: int, vocabulary: int, batches: int, config: DictConfig
) -> tuple[Corpus, Vocabularies]:
    """Generate pairs of random sentences of the given lengths that fill the requested batches."""
    if config.batching.batch_type != "sentences":
        raise UserError("--lengths fills batches of sentences: set batching.batch_type=sentences")
    if source_length < 1 or target_length < 1 or vocabulary < 4:
        raise UserError("--lengths must be at least 1 and --vocabulary at least 4")
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
    """Return the first training batches, on the device."""
    data = build_data(config, corpus, vocabularies)
    data.setup("fit")
    return [batch.to(device) for batch in islice(data.train_dataloader(), count)]


class Sizes(NamedTuple):
    """Sizes of a batch."""

    sentences: int
    source: int  # S
    target: int  # T
    tokens: int  # source and target tokens, without padding
    padded: int  # with padding


def sizes_of(batch: Batch) -> Sizes:
    """Return the sizes of a batch."""
    (sentences, source), target = batch.source.shape, batch.labels.size(1)
    tokens = int(batch.source_lengths.sum()) + int((batch.labels != PAD).sum())
    return Sizes(sentences, source, target, tokens, sentences * (source + target))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
