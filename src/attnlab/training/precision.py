"""The precision that `trainer.precision=auto` stands for."""

import logging

import torch

from attnlab.fast.machine import BF16_SHARE, bf16_share

log = logging.getLogger(__name__)

BF16, FP32 = "bf16-mixed", "32-true"


def resolve_precision(precision: str, accelerator: str, *, recorded: str | None = None) -> str:
    """Return the precision for Lightning: of `auto`, bf16 where it is faster, else fp32.

    A resumed run keeps `recorded`, what `auto` became when it was started.
    """
    if precision != "auto":
        return precision
    return recorded or (BF16 if multiplies_bf16(accelerator) else FP32)


def warn_of_slow_precision(precision: str, accelerator: str) -> None:
    """Warn, with the measured factor, if bf16 is to be used on a CPU that is slower in it."""
    if precision.startswith("bf16") and not multiplies_bf16(accelerator):
        log.warning(
            "trainer.precision=%s: a matrix product takes %.1f times as long on this CPU as in fp32: train "
            "with trainer.precision=auto or 32-true",
            precision,
            bf16_share(),
        )


def multiplies_bf16(accelerator: str) -> bool:
    """Return whether the GPU has units for bf16; without one, whether the CPU is faster in it."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bf16_share() < BF16_SHARE
