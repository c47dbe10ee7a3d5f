"""Choices of a run that are timed on its machine: precision, threads and the library of matrix products."""

import logging
import os
from typing import Any

import torch
from omegaconf import DictConfig

from attnlab.fast import machine
from attnlab.fast.linear import has_large_weights
from attnlab.fast.machine import BF16_SHARE, bf16_share
from attnlab.files.run_directory import Run
from attnlab.nn.seq2seq import Seq2Seq

log = logging.getLogger(__name__)

BF16, FP32 = "bf16-mixed", "32-true"


def choose_precision(trainer: DictConfig, recorded: str | None = None) -> str:
    """Return the precision of a section `trainer`: for `auto`, bf16 where this machine is faster in it."""
    if trainer.precision != "auto":
        return str(trainer.precision)
    return recorded or (BF16 if multiplies_bf16(trainer.accelerator) else FP32)


def with_precision(config: DictConfig, recorded: str | None = None) -> DictConfig:
    """Return a configuration with the precision of `choose_precision`."""
    precision = choose_precision(config.trainer, recorded)
    if config.trainer.precision == "auto":
        log.info("trainer.precision=auto: %s", precision)
        config = config.copy()
        config.trainer.precision = precision
    if precision.startswith("bf16") and not multiplies_bf16(config.trainer.accelerator):
        log.warning(
            "trainer.precision=%s: a matrix product takes %.1f times as long on this CPU as in fp32: train "
            "with trainer.precision=auto or 32-true",
            precision,
            bf16_share(),
        )
    return config


def multiplies_bf16(accelerator: str) -> bool:
    """Return whether the GPU has units for bf16; without one, whether the CPU is faster in it."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bf16_share() < BF16_SHARE


def choose_for_machine(config: DictConfig, network: Seq2Seq, run: Run) -> dict[str, Any]:
    """Choose the number of threads and the library of large products of a training on a CPU; set both.

    They are those that the run was started with, or else the faster ones, by timings. `OMP_NUM_THREADS`
    takes precedence. Returns the choices for result.json.
    """
    if config.trainer.accelerator != "cpu" and torch.cuda.is_available():
        return {}
    recorded = run.read_result()
    if config.trainer.devices == 1:
        machine.use_faster_threads(network.decoder.output_size, recorded.get("threads"))
    choices: dict[str, Any] = {"threads": torch.get_num_threads()}
    if has_large_weights(network):
        if "products" in recorded:
            os.environ[machine.LIBRARY] = recorded["products"]
        choices["products"] = "onednn" if machine.trains_by_onednn() else "mkl"
    log.debug("for this machine: %s", ", ".join(f"{name} {value}" for name, value in choices.items()))
    return choices
