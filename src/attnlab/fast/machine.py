"""Timings that choose what is faster on this machine; each takes a fraction of a second.

The libraries of the large products of training and of searches, bf16, and the number of threads: CPUs differ
in all of them. Threads are judged by the median of the time that passes, which other programs change; the
others by the CPU time of one thread, which they hardly change, and the shortest of some rounds.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import median

import torch
import torch.nn.functional as F

from attnlab.errors import UserError

LIBRARY, SEARCH_LIBRARY = "ATTNLAB_PRODUCTS", "ATTNLAB_SEARCH_PRODUCTS"
"""Environment variables with the library of the large products of training and of searches in fp32.

Each is `onednn` or `mkl`. The first timing sets it, so that the processes that this one starts do not repeat
it, and the user may set it.
"""

ROWS, OUTPUTS, INPUTS = 64, 2048, 512
"""The timed products are those of 64 sentences and an LSTM with 512 units."""

ONEDNN_SHARE = 0.945
"""oneDNN computes the products of training if it takes less than this share of the time of MKL.

Where it is 0.88 to 0.93, training with oneDNN is 6 % faster, and where it is 0.96 to 1.02, 5 % slower.
"""

SEARCH_SHARE = 1.1
"""oneDNN computes the products of a search if it takes less than this share of the time of MKL."""

BF16_SHARE = 0.75
"""bf16 is used if it takes less than this share of the time of fp32: 0.5 with bf16 units, over 2 without."""

THREADS_SHARE = 0.8
"""More threads are used if they take less than this share of the time.

Two threads on cores that other programs use take 13 to 120 times as long as one, on idle ones 0.5 to 0.9.
"""


def trains_by_onednn() -> bool:
    """Return whether oneDNN computes the large products of training in fp32, by a timing or `LIBRARY`."""
    return _chooses_onednn(LIBRARY, onednn_share, ONEDNN_SHARE)


def searches_by_onednn() -> bool:
    """Return whether oneDNN computes the large products of searches, by a timing or `SEARCH_LIBRARY`."""
    return _chooses_onednn(SEARCH_LIBRARY, search_share, SEARCH_SHARE)


def _chooses_onednn(variable: str, share: Callable[[], float], limit: float) -> bool:
    library = os.environ.get(variable)
    if library is None:
        library = os.environ[variable] = "onednn" if share() < limit else "mkl"
    if library not in ("onednn", "mkl"):
        raise UserError(f"{variable}={library}: set it to onednn or mkl, or unset it")
    return library == "onednn"


@torch.no_grad()
def onednn_share() -> float:
    """Return the time of oneDNN for the three products of a linear layer, divided by that of MKL."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return float("inf")
    x, d_output = torch.ones(ROWS, INPUTS), torch.ones(ROWS, OUTPUTS)
    weight = torch.full((OUTPUTS, INPUTS), 0.01)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def onednn() -> None:
        for left, right in ((x, packed), (d_output, weight.T), (d_output.T.contiguous(), x.T.contiguous())):
            torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")

    def mkl() -> None:
        for left, right in ((x, weight), (d_output, weight.T), (d_output.T, x.T)):
            F.linear(left, right)

    return cpu_time_share(onednn, mkl, rounds=8)


@torch.no_grad()
def search_share() -> float:
    """Return the time of oneDNN for a product with a stored weight, divided by that of MKL."""
    x, weight = torch.ones(ROWS, INPUTS), torch.full((OUTPUTS, INPUTS), 0.01)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)
    onednn = partial(torch.ops.mkldnn._linear_pointwise, x, packed, None, "none", [], "")
    return cpu_time_share(onednn, partial(F.linear, x, weight), rounds=4)


@cache
@torch.no_grad()
def bf16_share() -> float:
    """Return the time of a product in bf16 on the CPU, divided by that in fp32."""
    bf16, fp32 = (
        partial(F.linear, torch.ones(ROWS, INPUTS, dtype=dtype), torch.ones(OUTPUTS, INPUTS, dtype=dtype))
        for dtype in (torch.bfloat16, torch.float32)
    )
    return cpu_time_share(bf16, fp32, rounds=4)


def cpu_time_share(first: Callable[[], object], second: Callable[[], object], *, rounds: int) -> float:
    """Return the shortest CPU time of the first call divided by that of the second, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = _times([first, second], rounds, time.thread_time)
    finally:
        torch.set_num_threads(threads)
    return min(times[0]) / min(times[1])


@torch.no_grad()
def choose_threads(units: int, most: int) -> int:
    """Return the number of threads, up to `most`, that is fastest for the steps of an LSTM with these units.

    Numbers are doubled while that makes a step faster: see `THREADS_SHARE`.
    """
    x, weight = torch.ones(ROWS, units), torch.full((4 * units, units), 0.01)

    def step(threads: int) -> None:
        torch.set_num_threads(threads)
        for _ in range(2):
            torch.sigmoid(F.linear(x, weight)).sum(dim=1)

    before, threads = torch.get_num_threads(), 1
    try:
        while threads < most:
            more = min(2 * threads, most)
            times = _times([partial(step, more), partial(step, threads)], 3, time.perf_counter)
            if median(times[0]) >= THREADS_SHARE * median(times[1]):
                break
            threads = more
    finally:
        torch.set_num_threads(before)
    return threads


def use_faster_threads(units: int = INPUTS, recorded: int | None = None) -> None:
    """Set the number of threads to the faster one on the cores as they are, at most torch's default.

    `OMP_NUM_THREADS` takes precedence, and then `recorded`, an earlier choice, if it is possible here.
    """
    most = torch.get_num_threads()
    if most == 1 or "OMP_NUM_THREADS" in os.environ:
        return
    if recorded is None or recorded > most:
        recorded = choose_threads(units, most)
    torch.set_num_threads(recorded)


def _times(
    calls: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> list[list[float]]:
    """Return the times of each call in `rounds` alternating rounds, after one that compiles the products."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, measured in zip(calls, times, strict=True):
            start = clock()
            call()
            measured.append(clock() - start)
    return [measured[1:] for measured in times]
