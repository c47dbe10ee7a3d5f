"""Table of the allowed values of settings. Imports no torch."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from attnlab.config.rules import (
    Rule,
    choice,
    is_devices,
    is_duration,
    is_lengths,
    is_whole,
    number,
    share_or_count,
    show,
    whole,
)
from attnlab.data.datasets.scan import SPLITS
from attnlab.data.datasets.synthetic import TASKS
from attnlab.errors import UsageError

FLAG = choice(True, False)
SIZE = whole(1)
OPTIONAL_SIZE = whole(1, other=(None,))
DROPOUT = number("[0, 1)")
PROBABILITY = number("[0, 1]")
POSITIVE = number("(0, inf)")
NOT_NEGATIVE = number("[0, inf)")
FINITE = number("(-inf, inf)")
PATH = Rule(
    lambda value: isinstance(value, str) and bool(value.strip()) and "://" not in value,
    "the path of a folder, local or on a shared file system; object stores such as s3:// are not supported",
)
ODD = Rule(lambda value: is_whole(value) and value > 0 and value % 2 == 1, "an odd number ≥ 1")
CELL = choice("lstm", "gru")
POSITIONS = choice("none", "learned", "sinusoidal", "rotary", "alibi")
LENGTHS = Rule(is_lengths, "two whole numbers, the shortest and the longest length, such as [3,12]")
OPTIONAL_LENGTHS = Rule(lambda value: value is None or is_lengths(value), f"{LENGTHS.expected}, or null")

PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed", "32", "bf16", "16")
"""Precisions with weights in fp32. With other weights, metrics are inexact and decoding fails."""

RULES: dict[str, Rule] = {
    "seed": whole(0, 2**32 - 1),
    "force": FLAG,
    "quick": FLAG,
    "fused": FLAG,
    "oversubscribe": FLAG,
    "overfit": OPTIONAL_SIZE,
    "shared_vocabulary": FLAG,
    "attention_size": SIZE,
    "attention_bias": FLAG,
    "paths.output": PATH,
    "paths.cache": PATH,
    "embedding.size": SIZE,
    "embedding.dropout": DROPOUT,
    "embedding.word_dropout": DROPOUT,
    "embedding.shared": FLAG,
    "embedding.frozen": FLAG,
    **{
        f"{part}.{key}": rule
        for part in ("encoder", "decoder")
        for key, rule in {
            "cell": CELL,
            "size": SIZE,
            "layers": SIZE,
            "dropout": DROPOUT,
            "recurrent_dropout": DROPOUT,
            "layer_norm": FLAG,
            "bidirectional": FLAG,
            "input_feeding": FLAG,
            "residual": FLAG,
            "heads": SIZE,
            "expansion": POSITIVE,
            "kernel": ODD,
            "positions": POSITIONS,
            "max_positions": SIZE,
            "weights_layer": OPTIONAL_SIZE,
        }.items()
    },
    "bridge.activation": choice("tanh", "identity"),
    "bridge.layers_from": choice("top", "each"),
    "bridge.half": choice("both", "backward"),
    "attention.size": SIZE,
    "attention.bias": FLAG,
    "attention.strength": FINITE,
    "attention.max_fertility": POSITIVE,
    "attention.temperature": POSITIVE,
    "attention.window": SIZE,
    "attention.max_length": SIZE,
    "attention.channels": SIZE,
    "attention.kernel": ODD,
    "attention.components": SIZE,
    "attention.step": POSITIVE,
    "attention.width": POSITIVE,
    "attention.chunk": SIZE,
    "attention.offset": FINITE,
    "attention.noise": NOT_NEGATIVE,
    "attention.heads": SIZE,
    "attention.reach": SIZE,
    "attention.initial": DROPOUT,
    "normaliser.alpha": Rule(
        lambda value: not isinstance(value, bool) and value in (1, 1.5, 2),
        "1 (softmax), 1.5 (1.5-entmax) or 2 (sparsemax)",
    ),
    "normaliser.temperature": POSITIVE,
    "readout.parts": Rule(
        lambda value: (
            isinstance(value, list)
            and bool(value)
            and {*map(str, value)} <= {"state", "previous_state", "context", "input"}
        ),
        "a list of state, previous_state, context and input, such as [state,context]",
    ),
    "readout.maxout": OPTIONAL_SIZE,
    "readout.dropout": DROPOUT,
    "readout.tied": FLAG,
    "optimizer.lr": POSITIVE,
    "optimizer.weight_decay": NOT_NEGATIVE,
    "optimizer.rho": DROPOUT,
    "optimizer.eps": NOT_NEGATIVE,
    "optimizer.fused": choice(True, False, None),
    "scheduler.interval": choice("step", "epoch"),
    "scheduler.schedule.factor": POSITIVE,
    "scheduler.schedule.after": NOT_NEGATIVE,
    "scheduler.schedule.every": POSITIVE,
    "scheduler.schedule.max_lr": POSITIVE,
    "scheduler.schedule.pct_start": PROBABILITY,
    "scheduler.schedule.cycle_momentum": FLAG,
    "scheduler.schedule.patience": whole(0),
    "teacher_forcing.start": PROBABILITY,
    "teacher_forcing.decay": choice("linear", "inverse_sigmoid", None),
    "teacher_forcing.end": PROBABILITY,
    "teacher_forcing.steps": POSITIVE,
    "teacher_forcing.per": choice("step", "token"),
    **{
        f"{side}.{key}": rule
        for side in ("tokenizer", "target_tokenizer")
        for key, rule in {
            "max_size": OPTIONAL_SIZE,
            "min_frequency": SIZE,
            "count": SIZE,
            "graphemes": FLAG,
            "algorithm": choice("bpe", "unigram"),
            "lowercase": FLAG,
            "normalization": choice("nfc", "nfd", "nfkc", "nfkd", None),
            "dropout": DROPOUT,
            "subwords": FLAG,
        }.items()
    },
    "batching.batch_size": SIZE,
    "batching.batch_type": choice("sentences", "tokens"),
    "batching.bucket_by_length": FLAG,
    "batching.pool": SIZE,
    "batching.evaluation_batch_size": OPTIONAL_SIZE,
    "batching.source_eos": FLAG,
    "batching.max_source_length": OPTIONAL_SIZE,
    "batching.max_target_length": OPTIONAL_SIZE,
    "batching.shards": OPTIONAL_SIZE,
    "batching.workers": whole(0),
    "loss.label_smoothing": PROBABILITY,
    "loss.coverage": NOT_NEGATIVE,
    "loss.alignment": NOT_NEGATIVE,
    "distillation.teachers": Rule(
        lambda value: isinstance(value, list) and all(isinstance(path, str) for path in value),
        "a list of run directories or checkpoint files",
    ),
    "distillation.weight": PROBABILITY,
    "search.beam_size": SIZE,
    "search.max_length": SIZE,
    "search.length_penalty": NOT_NEGATIVE,
    "search.min_length": whole(0),
    "search.no_repeat_ngram_size": whole(0),
    "search.prefix_size": whole(0, other=(None,)),
    "search.grammar": choice("python", None),
    "search.num_beam_groups": SIZE,
    "search.early_stopping": FLAG,
    "search.diversity_penalty": NOT_NEGATIVE,
    "search.temperature": number("(0, inf)", null=True),
    "search.top_k": OPTIONAL_SIZE,
    "search.top_p": number("(0, 1]", null=True),
    "search.seed": whole(0, 2**32 - 1),
    "search.forced_tokens": Rule(
        lambda value: (
            value is None
            or (
                isinstance(value, list)
                and all(token is None or type(token) in (str, int, float, bool) for token in value)
            )
        ),
        "a list of tokens, such as [the,null,cat], or null",
    ),
    "init.from": Rule(
        lambda value: value is None or (isinstance(value, str) and bool(value.strip())),
        "a run directory or a checkpoint file, or null",
    ),
    "init.freeze": Rule(
        lambda value: isinstance(value, list) and all(isinstance(part, str) for part in value),
        "a list of parts of the network, such as [encoder,source_embedding]",
    ),
    "reranking.coverage_penalty": NOT_NEGATIVE,
    "checkpoint.mode": choice("min", "max"),
    "checkpoint.every_minutes": number("[0, inf)", null=True),
    "checkpoint.keep": whole(0),
    "callbacks.attention_figures.count": whole(0),
    "callbacks.attention_figures.every_n_epochs": SIZE,
    "callbacks.attention_weights.count": whole(0),
    "callbacks.early_stopping.mode": choice("min", "max"),
    "callbacks.early_stopping.patience": whole(0, other=(None,)),
    "callbacks.averaging.decay": number("[0, 1)", null=True),
    "callbacks.averaging.update_starting_at_epoch": whole(0),
    "logger.wandb.mode": choice("auto", "online", "offline"),
    "logger.wandb.timeout": POSITIVE,
    "data.task": choice(*TASKS),
    "data.split": choice(*SPLITS),
    "data.vocabulary": whole(2),
    "data.symbols": SIZE,
    "data.train_lengths": LENGTHS,
    "data.val_lengths": LENGTHS,
    "data.test_lengths": LENGTHS,
    "data.longer_lengths": OPTIONAL_LENGTHS,
    "data.train_size": OPTIONAL_SIZE,
    "data.val_size": SIZE,
    "data.test_size": whole(0, other=(None,)),
    "data.seed": whole(0),
    "data.val_fraction": DROPOUT,
    "data.held_out_fraction": number("[0, 0.9)"),
    "data.score_held_out": FLAG,
    "data.test_fraction": DROPOUT,
    "data.header": FLAG,
    "data.source_column": whole(0),
    "data.target_column": whole(0),
    "data.limit": OPTIONAL_SIZE,
    "data.group_by_question": FLAG,
    "data.near_duplicates": number("(0, 1]", null=True),
    "data.keep_unrewritten": FLAG,
    "data.max_tokens": OPTIONAL_SIZE,
    "data.max_ratio": number("[1, inf)", null=True),
    "data.preparation.normalise": FLAG,
    "data.preparation.slots": FLAG,
    "explain.sentences": SIZE,
    "explain.steps": SIZE,
    "explain.epsilon": number("[0, 1)"),
    "trainer.accelerator": choice("auto", "cpu", "gpu", "cuda"),
    "trainer.devices": Rule(is_devices, "a number of devices ≥ 1, a list of devices, auto, or -1 for all"),
    "trainer.num_nodes": SIZE,
    "trainer.precision": Rule(lambda value: str(value) in PRECISIONS, ", ".join(PRECISIONS)),
    "trainer.max_epochs": whole(1, other=(-1,)),
    "trainer.min_epochs": whole(0, other=(None,)),
    "trainer.max_steps": whole(1, other=(-1,)),
    "trainer.min_steps": whole(0, other=(None,)),
    "trainer.max_time": Rule(is_duration, "days:hours:minutes:seconds, such as 00:12:00:00, or null"),
    "trainer.gradient_clip_val": number("[0, inf)", null=True),
    "trainer.gradient_clip_algorithm": choice("norm", "value", None),
    "trainer.accumulate_grad_batches": SIZE,
    "trainer.val_check_interval": share_or_count(None),
    "trainer.check_val_every_n_epoch": OPTIONAL_SIZE,
    "trainer.log_every_n_steps": SIZE,
    "trainer.limit_train_batches": share_or_count(None),
    "trainer.limit_val_batches": share_or_count(None),
    "trainer.limit_test_batches": share_or_count(None),
    "trainer.limit_predict_batches": share_or_count(None),
    "trainer.overfit_batches": Rule(lambda value: value == 0, "0; debug=overfit trains on one batch"),
    "trainer.fast_dev_run": whole(1, other=(True, False)),
    "trainer.deterministic": choice(True, False, "warn", None),
    "trainer.benchmark": choice(True, False, None),
    "trainer.inference_mode": FLAG,
    "trainer.profiler": Rule(
        lambda value: isinstance(value, dict) or value in (None, "simple", "advanced", "pytorch"),
        "simple, advanced, pytorch, null or a section with a _target_",
    ),
    "trainer.detect_anomaly": FLAG,
    "trainer.barebones": Rule(
        lambda value: value is False, "false, since checkpoints and metrics are needed"
    ),
    "trainer.sync_batchnorm": FLAG,
    "trainer.reload_dataloaders_every_n_epochs": whole(0),
    "trainer.enable_autolog_hparams": FLAG,
    "tune.trials": SIZE,
    "tune.seed": whole(0, 2**32 - 1),
    "tune.pruner.n_startup_trials": whole(0),
    "tune.pruner.n_warmup_steps": whole(0),
}
"""Allowed values by setting."""

SHIPPED = ("attnlab.", "torch.", "lightning.", "optuna.")
"""Packages of classes whose arguments have rules. A custom class may use the same names for other values."""


def check_ranges(config: DictConfig) -> None:
    """Check the settings of `RULES`, and that the decoder has a position for `search.max_length`.

    Raises:
        UsageError: at the first value that is not allowed.
    """
    settings = OmegaConf.to_container(config, resolve=True)
    for key, rule in RULES.items():
        for value in _values(settings, key.split(".")):
            if not rule.allows(value):
                raise UsageError(f"{key}={show(value)}: must be {rule.expected}")
    places, longest = config.decoder.get("max_positions"), config.search.max_length
    if config.decoder.get("positions") == "learned" and isinstance(places, int) and places <= longest:
        raise UsageError(
            f"search.max_length={longest}: must be less than decoder.max_positions={places}, the number of "
            "learned positions"
        )


def _values(node: Any, keys: list[str]) -> list[Any]:
    """Return [value] of a setting; [] if it does not exist or belongs to a custom class."""
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return []
        if not str(node.get("_target_", SHIPPED[0])).startswith(SHIPPED):
            return []
        node = node[key]
    return [node]
