"""The hash that identifies a run by the settings that determine its results.

A hash stays the same from one version of attnlab to the next if the results do:

- Settings of `NO_EFFECT` are left out. They change what is written, and how fast, but no weight and no score.
- A key `_partial_` is left out where options gained it: see `PARTIAL`.
- `trainer.accelerator` counts as `auto`, which is a different accelerator on each machine.
- A setting that is null, or that has its value in `NEUTRAL`, is left out: the run equals a run of a version
  without this setting. A new setting changes no hash if its default is null, or is recorded in `NEUTRAL`. A
  recorded value stays, even if the default changes.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

NO_EFFECT = (
    *("force", "quick", "oversubscribe"),
    *("paths", "data.cache", "logger"),
    *("batching.workers", "checkpoint.every_minutes", "checkpoint.keep"),
    *("callbacks.attention_figures", "callbacks.attention_weights"),
    *("trainer.log_every_n_steps", "trainer.profiler", "trainer.detect_anomaly", "trainer.model_registry"),
    *("trainer.enable_autolog_hparams", "trainer.enable_model_summary", "trainer.enable_progress_bar"),
    *("trainer.default_root_dir", "trainer.inference_mode"),
)
"""Settings, and sections of settings, that do not change the results."""

DEVICE_COUNTS = ("trainer.devices", "trainer.num_nodes", "trainer.strategy")
"""Settings that do not change the results of a run with `batching.shards`."""

NEUTRAL: Mapping[str, Any] = {
    "attention.gate_bias": 0.0,
    "attention.score.gate_bias": 0.0,
    "callbacks.averaging._target_": "attnlab.training.callbacks.weight_averaging.WeightAveraging",
    "callbacks.averaging.update_starting_at_epoch": 0,
    "callbacks.early_stopping._target_": "lightning.pytorch.callbacks.EarlyStopping",
    "data.metrics": [],
    "data.min_probability": 0.0,
    "embedding._target_": "attnlab.nn.embedding.TokenEmbedding",
    "fused": True,
    "features._target_": "attnlab.nn.features.Concatenated",
    "loss.terms.alignment._target_": "attnlab.training.losses.alignment.GuidedAlignment",
    "loss.terms.coverage._target_": "attnlab.training.losses.coverage.Coverage",
    "loss.terms.label_smoothing._target_": "attnlab.training.losses.label_smoothing.LabelSmoothing",
    "target_tokenizer.algorithm": "bpe",
    "target_tokenizer.dropout": 0.0,
    "tokenizer.algorithm": "bpe",
    "tokenizer.dropout": 0.0,
    "trainer.check_val_every_n_epoch": 1,
    "trainer.fast_dev_run": False,
    "trainer.max_steps": -1,
    "trainer.num_nodes": 1,
    "trainer.overfit_batches": 0.0,
    "trainer.reload_dataloaders_every_n_epochs": 0,
    "trainer.sync_batchnorm": False,
}
"""Values with which a run equals a run without the setting. For arguments of Lightning's Trainer: their
defaults."""

PARTIAL = (
    *("bridge", "decoder", "embedding", "encoder", "features", "optimizer", "readout", "scheduler.schedule"),
    *("target_embedding", "target_tokenizer", "tokenizer"),
)
"""Sections with a key `_partial_` that only serves to instantiate their options by themselves."""

LOSS_TERMS = ("alignment", "coverage", "label_smoothing")
"""Terms that were settings of the loss, with weights of 0 by default: their hashes are those of before."""


def identify(config: DictConfig) -> str:
    """Return eight hexadecimal digits, equal for resolved configurations with the same results."""
    settings = OmegaConf.to_container(config, resolve=True)
    assert isinstance(settings, dict)
    return short_hash(identity(settings))


def identity(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the settings that determine the results, by dotted name.

    These are all settings except `NO_EFFECT`, except `DEVICE_COUNTS` if there are shards, and except neutral
    values and loss terms of weight 0.
    """
    flat = flatten(settings)
    unused = tuple(
        name.removesuffix("weight")
        for name, value in flat.items()
        if re.fullmatch(r"loss\.terms\.\w+\.weight", name) and value == 0
    )
    flat = {name: value for name, value in flat.items() if not name.startswith(unused)}
    for term in LOSS_TERMS:
        flat[f"loss.{term}"] = flat.pop(f"loss.terms.{term}.weight", 0.0)
    if "trainer.accelerator" in flat:
        flat["trainer.accelerator"] = "auto"  # not left out: the hashes of earlier versions cover it
    if type(flat.get("trainer.val_check_interval")) is int:  # with null, batches are counted over epochs
        every = flat.get("trainer.check_val_every_n_epoch", 1)
        flat["trainer.check_val_every_n_epoch"] = None if every is None else str(every)
    excluded = NO_EFFECT if flat.get("batching.shards") is None else (*NO_EFFECT, *DEVICE_COUNTS)
    sections = tuple(f"{name}." for name in excluded)
    return {
        name: value
        for name, value in flat.items()
        if not f"{name}.".startswith(sections) and not is_neutral(name, value)
    }


def is_neutral(name: str, value: Any) -> bool:
    """Return whether a run with this value of a setting equals a run without the setting."""
    if value is None or (name.endswith("._partial_") and name.startswith(PARTIAL)):
        return True
    neutral = NEUTRAL.get(name)
    return bool(value == neutral) and isinstance(value, bool) == isinstance(neutral, bool)


def flatten(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return every setting by its dotted name."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def short_hash(value: Any) -> str:
    """Return eight hexadecimal digits of the SHA-256 of a JSON value, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
