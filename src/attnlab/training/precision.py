"""The precision that `trainer.precision=auto` stands for."""

import logging
import time
from collections.abc import Set

import torch
import torch.nn.functional as F

from attnlab.training.environment import cpu_info

log = logging.getLogger(__name__)

BF16, FP32 = "bf16-mixed", "32-true"
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Features of CPUs, as Linux names them, that multiply in bf16."""


def cpu_flags() -> frozenset[str]:
    """Return the features that Linux lists for the CPU; empty on other systems."""
    listed = cpu_info("flags", "Features")
    return frozenset(listed[0].split() if listed else ())


def resolve_precision(
    precision: str, accelerator: str, flags: Set[str], *, recorded: str | None = None
) -> str:
    """Return the precision for Lightning: of `auto`, bf16 if the hardware multiplies in it, else fp32.

    The choice depends on the model of the CPU or GPU only, not on a measurement, so that all processes of a
    run and its later resumptions make the same one: `recorded`, what `auto` became when the run was started,
    is kept. The flags are those of `cpu_flags`.
    """
    if precision != "auto":
        return precision
    return recorded or (BF16 if multiplies_bf16(accelerator, flags) else FP32)


def warn_of_slow_precision(precision: str, accelerator: str, flags: Set[str]) -> None:
    """Warn, with the measured factor, if bf16 is to be used on a CPU without bf16 units.

    Arguments as of `resolve_precision`.
    """
    if precision.startswith("bf16") and not multiplies_bf16(accelerator, flags):
        log.warning(
            "trainer.precision=%s: this CPU has no bf16 units, and a matrix product takes %.1f times as long "
            "as in fp32: train with trainer.precision=auto or 32-true",
            precision,
            bf16_slowdown(),
        )


def multiplies_bf16(accelerator: str, flags: Set[str]) -> bool:
    """Return whether the GPU, or the CPU where none is used, has units for bf16."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(flags & BF16_FLAGS)


def bf16_slowdown() -> float:
    """Measure how many times as long a matrix product takes in bf16 as in fp32, in about 50 ms."""
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    operands = {
        dtype: (torch.ones(128, 512, dtype=dtype), torch.ones(1024, 512, dtype=dtype)) for dtype in seconds
    }
    for _ in range(4):  # the first one compiles the product
        for dtype, (x, weight) in operands.items():
            start = time.perf_counter()
            F.linear(x, weight)
            seconds[dtype].append(time.perf_counter() - start)
    return min(seconds[torch.bfloat16]) / min(seconds[torch.float32])
