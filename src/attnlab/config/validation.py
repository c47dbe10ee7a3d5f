"""Checks of a composed configuration before a run directory is created. Imports no torch."""

from __future__ import annotations

import unicodedata
from typing import Any

from omegaconf import DictConfig

from attnlab.config.options import options_of, suggest
from attnlab.config.range_checks import check_ranges
from attnlab.config.renamed_settings import explain_renamed
from attnlab.config.rules import show
from attnlab.errors import UsageError
from attnlab.metrics.registry import METRICS, better

LONGEST_NAME = 150
"""Largest number of bytes of `name` and of `variant`, which are parts of the run directory's path."""

SECTIONS = (
    *(
        "paths",
        "embedding",
        "batching",
        "loss",
        "search",
        "checkpoint",
        "trainer",
        "callbacks",
        "logger",
        "init",
    ),
    *("data", "tokenizer", "encoder", "bridge", "attention", "normaliser", "decoder", "readout", "optimizer"),
    *("scheduler", "teacher_forcing", "reranking"),
)
"""Settings that are mappings of further settings."""

TRAINING_METRICS = ("train/loss", "train/loss_epoch")


def check_settings(config: DictConfig) -> None:
    """Check the values of a composed configuration.

    Raises:
        UsageError: at the first setting that cannot be trained with.
    """
    for section in SECTIONS:
        _check_section(section, config.get(section))
    for key in ("name", "variant"):
        _check_name(key, config.get(key))
    check_ranges(config)
    _check_monitor("checkpoint", config.checkpoint)
    stopping = config.callbacks.get("early_stopping")
    if stopping is not None and "monitor" in stopping and "mode" in stopping:
        _check_monitor("callbacks.early_stopping", stopping)
    _check_trainer(config.trainer)


def _check_section(section: str, value: Any) -> None:
    if isinstance(value, DictConfig):
        return
    override = f"{section}={show(value)}"
    if outdated := explain_renamed(section, show(value)):
        raise UsageError(outdated)
    options = options_of(section)
    if options:
        raise UsageError(f"{override}: choose an option, such as {section}={options[0]}")
    raise UsageError(f"{override}: {section} is a section; give its single settings, {section}.…=…")


def _check_name(key: str, value: Any) -> None:
    """Check a part of the run directory's path."""
    text = "" if value is None else str(value)
    problem = None
    if not text.strip():
        problem = "must not be empty"
    elif text in (".", "..") or any(sign in text for sign in "/\\"):
        problem = "must be the name of one folder, without / and \\; paths.output sets where it is"
    elif any(unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") for sign in text):
        problem = "must not contain control characters"
    elif text != text.strip() or text.endswith("."):
        problem = "must not start with a space, or end with a space or a dot"
    elif text.startswith(("-", "~")):
        problem = "must not start with - or ~"
    elif len(text.encode()) > LONGEST_NAME:
        text = f"{text[:20]}…"
        problem = f"must have at most {LONGEST_NAME} bytes"
    if problem:
        raise UsageError(f"{key}={text!r}: {problem}")


def known_metrics() -> list[str]:
    """Return the names of all metrics that a training run can log and monitor."""
    logged = [
        metric if info.kind == "attention" else f"val/{metric}"
        for metric, info in METRICS.items()
        if info.kind in ("token", "text", "attention")
    ]
    return [*logged, *TRAINING_METRICS]


def _check_monitor(section: str, settings: DictConfig) -> None:
    """Check the monitored metric of a section, and that its mode fits the metric."""
    monitor, metrics = settings.monitor, known_metrics()
    override = f"{section}.monitor={show(monitor)}"
    if monitor not in metrics:
        near = suggest(str(monitor), metrics)
        raise UsageError(f"{override}: no such metric.{near} Metrics: {', '.join(metrics)}")
    mode = {"higher": "max", "lower": "min", None: settings.mode}[better(monitor)]
    if settings.mode != mode:
        raise UsageError(
            f"{override} with {section}.mode={settings.mode} would prefer the worst checkpoint: set "
            f"{section}.mode={mode}"
        )


def _check_trainer(trainer: DictConfig) -> None:
    if trainer.max_epochs == -1 and trainer.max_steps == -1:
        raise UsageError("trainer.max_epochs=-1: set trainer.max_steps to the number of steps to train")
