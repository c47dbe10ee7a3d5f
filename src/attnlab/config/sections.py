"""The sections of a configuration: what receives their settings, and the types of those without constructor.

The settings of a section are the arguments of the class or function that its `_target_` names. A comment in
`conf/` describes each setting whose docstring has no entry.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple

from annotated_types import Predicate

from attnlab.config.options import PARTS
from attnlab.config.signatures import UNTYPED, Signature, signature
from attnlab.settings import (
    Component,
    Count,
    FilePath,
    FolderPath,
    Fraction,
    NotNegative,
    Positive,
    PositiveFraction,
    Seed,
    Size,
)

Types = Mapping[str, Any]
"""Type of each setting, or its type and its meaning."""
Directions = Literal["min", "max"]
Share = Annotated[PositiveFraction | Size, "a share in (0, 1] or a whole number of batches ≥ 1"] | None

_RUN: Types = {
    "name": str,
    "variant": str,
    "seed": Seed,
    "force": bool,
    "quick": bool,
    "oversubscribe": (bool, "allow trainer.devices to exceed the number of CPU cores."),
    "fused": (bool, "hand-written backward passes and oneDNN products; false for plain PyTorch."),
    "overfit": (
        Size | None,
        "train and validate on this many training pairs only, to find errors; null for all data.",
    ),
    "shared_vocabulary": bool,
    "attention_size": Size,
    "attention_bias": (bool, "a bias inside the tanh of attention=additive and concat."),
    "attention_override": (
        str | None,
        "intervention in `attnlab evaluate`: uniform, shuffled, argmax, previous, none or all.",
    ),
}
"""Settings outside all sections."""

_PATHS: Types = {"output": FolderPath, "cache": FolderPath}

_EMBEDDING: Types = {
    "shared": bool,
    "source_vectors": (
        FilePath | None,
        "pretrained word vectors in the text format of word2vec or GloVe, or fastText's .vec.",
    ),
    "target_vectors": (FilePath | None, "the same for the target side."),
    "frozen": (bool, "do not train the tables with pretrained vectors."),
}
"""Settings of both embeddings."""

_MATCHED: Types = {"match": Component | None}

_TIED: Types = {"tied": bool}

_INITIALISATION: Types = {
    "from": (
        Annotated[
            str | None,
            Predicate(lambda value: value is None or bool(value.strip())),
            "a run directory or a checkpoint file, or null",
        ],
        "run directory or checkpoint file to start from; null for random weights.",
    ),
    "freeze": (
        Annotated[Sequence[str], "a list of parts of the network, such as [encoder,source_embedding]"],
        "parts that are not trained.",
    ),
    "shrink": (PositiveFraction, "factor of the loaded weights, also in frozen parts."),
}
"""Initial weights from another run."""

_SEARCH: Types = {
    "max_length": (
        Size | None,
        "maximum number of output tokens, EOS excluded; null for 1.5 times the longest training "
        "or validation target, at least 100.",
    )
}
"""Search for the outputs."""

_BLEU: Types = {
    "tokenize": (
        Literal["13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"] | None,
        "sacreBLEU's tokenizer; null for one that fits the script of the references: 13a, zh, or "
        "char for other scripts without spaces between words.",
    )
}
"""BLEU of the outputs."""

_DATA: Types = {
    "metrics": (
        Sequence[str],
        "scores of decoded texts besides those of every dataset; [wer,ser] replace BLEU, chrF and the edit "
        "distance.",
    )
}

_RERANKING: Types = {
    "coverage_penalty": NotNegative,
    "similarity": Component | None,
    "prefers": Component | None,
    "accepts": Component | None,
}

_CHECKPOINT: Types = {
    "monitor": str | None,
    "mode": Directions,
    "every_minutes": NotNegative | None,
    "keep": Count,
}

_OPTIMIZER: Types = {
    "lr": Positive,
    "weight_decay": NotNegative,
    "rho": Fraction,
    "eps": NotNegative,
    "fused": bool | None,
}

_SCHEDULER: Types = {
    "interval": Literal["step", "epoch"],
    "needs": Annotated[
        Mapping[str, Literal["total_steps", "steps_per_epoch"]],
        "arguments of the schedule, each total_steps or steps_per_epoch",
    ],
    "schedule": Component,
}

_SCHEDULE: Types = {"factor": Positive, "patience": Count}

_EARLY_STOPPING: Types = {"monitor": str | None, "mode": Directions, "patience": Count}


def _is_devices(value: Any) -> bool:
    numbers = value if isinstance(value, list) else str(value).split(",")
    return value in ("auto", -1, "-1") or (
        bool(numbers)
        and all(re.fullmatch(r"\d+", str(number).strip()) for number in numbers)
        and (isinstance(value, list) or "," in str(value) or int(str(value)) >= 1)
    )


def _is_duration(value: Any) -> bool:
    return value is None or isinstance(value, Mapping) or bool(re.fullmatch(r"\d+(:\d+){3}", str(value)))


PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed", "32", "bf16", "16")
"""Precisions with weights in fp32. With other weights, metrics are inexact and decoding fails."""

_TRAINER: Types = {
    "accelerator": Literal["auto", "cpu", "gpu", "cuda"],
    "strategy": str | Component,
    "devices": Annotated[
        Any, Predicate(_is_devices), "a number of devices ≥ 1, a list of devices, auto, or -1 for all"
    ],
    "precision": Annotated[Any, Predicate(lambda value: str(value) in PRECISIONS), ", ".join(PRECISIONS)],
    "max_epochs": Size | Literal[-1],
    "max_steps": Size | Literal[-1],
    "max_time": Annotated[
        Any, Predicate(_is_duration), "days:hours:minutes:seconds, such as 00:12:00:00, or null"
    ],
    "gradient_clip_val": NotNegative | None,
    "accumulate_grad_batches": Size,
    "val_check_interval": Share,
    "check_val_every_n_epoch": Size | None,
    "log_every_n_steps": Size,
    "limit_train_batches": Share,
    "limit_val_batches": Share,
    "limit_test_batches": Share,
    "profiler": Literal["simple", "advanced", "pytorch"] | Component | None,
}


class Section(NamedTuple):
    """A section of the configuration."""

    own: Types = MappingProxyType({})  # settings that its target does not take
    target: str | None = None  # class or function that receives the settings if the section has no `_target_`
    types: Types = MappingProxyType({})  # types of arguments of a target outside attnlab
    supplied: tuple[str, ...] = ()  # arguments that attnlab passes, which are no settings
    optional: bool = False  # whether the configuration may lack the section, or have null in its place

    def signature(self, target: Any) -> Signature:
        """Return the settings of the section by name, if its `_target_` is this."""
        target = self.target if target is None else target
        known = Signature({}, target is not None)
        taken = signature(target) if isinstance(target, str) else known
        arguments = {name: kind for name, kind in taken.arguments.items() if name not in self.supplied}
        if str(target).partition(".")[0] in UNTYPED:
            arguments |= {name: kind for name, kind in self.types.items() if name in arguments or taken.open}
        for name, own in self.own.items():
            arguments[name] = own[0] if isinstance(own, tuple) else own
        return Signature(arguments, taken.open)


TOKENIZER = Section(supplied=("texts",))
EMBEDDING = Section(
    _EMBEDDING, "attnlab.nn.embedding.TokenEmbedding", supplied=("vocabulary_size", "tokenizer")
)
BUILT = ("state_size", "context_size", "input_size", "vocabulary_size")

SECTIONS = {
    "": Section(_RUN),
    "paths": Section(_PATHS),
    "data": Section(_DATA),
    "tokenizer": TOKENIZER,
    "target_tokenizer": TOKENIZER._replace(optional=True),
    "embedding": EMBEDDING,
    "target_embedding": EMBEDDING._replace(own={}, optional=True),
    "encoder": Section(_MATCHED, supplied=("input_size", "tokenizer")),
    "features": Section(supplied=("is_feature", "input_size", "memory_size", "make_encoder")),
    "bridge": Section(supplied=("memory_size", "encoder_layers", "size", "layers", "states_per_layer")),
    "attention": Section(_MATCHED, supplied=("query_size", "memory_size", "normaliser")),
    "attention.score": Section(supplied=("query_size", "memory_size", "normaliser")),
    "normaliser": Section(target="attnlab.nn.attention.normalisers.Entmax"),
    "decoder": Section(supplied=("input_size", "attention")),
    "readout": Section(_TIED, supplied=BUILT),
    "optimizer": Section(types=_OPTIMIZER, supplied=("params",)),
    "scheduler": Section(_SCHEDULER),
    "scheduler.schedule": Section(
        types=_SCHEDULE, supplied=("optimizer", "total_steps", "steps_per_epoch", "T_max")
    ),
    "teacher_forcing": Section(target="attnlab.training.teacher_forcing.TeacherForcing"),
    "batching": Section(
        target="attnlab.data.datamodule.Seq2SeqData",
        supplied=("corpus", "vocabularies", "with_copy_ids", "seed"),
    ),
    "loss": Section(),
    "loss.terms": Section(),
    "bleu": Section(_BLEU),
    "search": Section(
        _SEARCH,
        target="attnlab.decoding.translator.Translator",
        supplied=("vocabularies", "reranking", "grammar"),
    ),
    "reranking": Section(_RERANKING),
    "grammar": Section(optional=True),
    "init": Section(_INITIALISATION, optional=True),
    "checkpoint": Section(_CHECKPOINT),
    "trainer": Section(
        target="lightning.Trainer",
        types=_TRAINER,
        supplied=(
            *("logger", "callbacks", "plugins", "default_root_dir", "enable_checkpointing", "barebones"),
            *("enable_progress_bar", "enable_model_summary", "use_distributed_sampler", "overfit_batches"),
            "num_sanity_val_steps",
        ),
    ),
    "callbacks": Section(optional=True),
    "callbacks.early_stopping": Section(types=_EARLY_STOPPING, optional=True),
    "logger": Section(optional=True),
    "explain": Section(optional=True),
}
"""The sections by dotted name."""


def section_at(path: str) -> Section:
    """Return a section by its dotted name; also that of a callback, a logger or a term of the loss."""
    part = path.rpartition(".")[0] in PARTS.values()
    return SECTIONS.get(path, Section(supplied=("run", "config") if part else ()))
