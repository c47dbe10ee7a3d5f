"""The sections of a configuration: what receives their settings, and the types of those without constructor.

The settings of a section are the arguments of the class or function that its `_target_` names. A comment in
`conf/` describes each setting whose docstring has no entry.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from annotated_types import Predicate

from attnlab.config.signatures import UNTYPED, Argument, Signature, entries, signature
from attnlab.settings import (
    Component,
    Count,
    FilePath,
    FolderPath,
    Fraction,
    NotNegative,
    Positive,
    PositiveFraction,
    Probability,
    Seed,
    Size,
)

Directions = Literal["min", "max"]
Share = Annotated[PositiveFraction | Size, "a share in (0, 1] or a whole number of batches ≥ 1"] | None


class _Run(TypedDict):
    """Settings outside all sections.

    Args:
        oversubscribe: allow trainer.devices to exceed the number of CPU cores.
        fused: hand-written backward passes and oneDNN products; false for plain PyTorch.
        overfit: train and validate on this many training pairs only, to find errors; null for all data.
        attention_bias: a bias inside the tanh of attention=additive and concat.
        attention_override: intervention in `attnlab evaluate`: uniform, shuffled, argmax, previous, none or
            all.
    """

    name: str
    variant: str
    seed: Seed
    force: bool
    quick: bool
    oversubscribe: bool
    fused: bool
    overfit: Size | None
    shared_vocabulary: bool
    attention_size: Size
    attention_bias: bool
    attention_override: str | None


class _Paths(TypedDict):
    output: FolderPath
    cache: FolderPath


class _Embedding(TypedDict):
    """Settings of both embeddings.

    Args:
        source_vectors: pretrained word vectors in the text format of word2vec or GloVe, or fastText's .vec.
        target_vectors: the same for the target side.
        frozen: do not train the tables with pretrained vectors.
    """

    shared: bool
    source_vectors: FilePath | None
    target_vectors: FilePath | None
    frozen: bool


class _Matched(TypedDict):
    match: Component | None


class _Tied(TypedDict):
    tied: bool


class _Loss(TypedDict):
    label_smoothing: Probability
    coverage: NotNegative
    alignment: NotNegative


class _Distillation(TypedDict):
    """Word-level knowledge distillation (Kim & Rush, 2016).

    Args:
        teachers: trained runs with the same vocabularies; the mean of their predictions is learned.
        weight: share of the teachers' predictions in the loss, 0.5 by default; the references have the rest.
    """

    teachers: Annotated[Sequence[str], "a list of run directories or checkpoint files"]
    weight: Probability


_Initialisation = TypedDict(
    "_Initialisation",
    {
        "from": Annotated[
            str | None,
            Predicate(lambda value: value is None or bool(value.strip())),
            "a run directory or a checkpoint file, or null",
        ],
        "freeze": Annotated[
            Sequence[str], "a list of parts of the network, such as [encoder,source_embedding]"
        ],
    },
)
_Initialisation.__doc__ = """Initial weights from another run.

Args:
    from: run directory or checkpoint file to start from; null for random weights.
    freeze: parts that are not trained.
"""


class _Search(TypedDict):
    """Search for the outputs.

    Args:
        max_length: maximum number of output tokens, EOS excluded; null for 1.5 times the longest training or
            validation target, at least 100.
    """

    max_length: Size | None


class _Bleu(TypedDict):
    """BLEU of the outputs.

    Args:
        tokenize: sacreBLEU's tokenizer; null for one that fits the script of the references: 13a, zh, or char
            for other scripts without spaces between words.
    """

    tokenize: (
        Literal["13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"] | None
    )


class _Reranking(TypedDict):
    coverage_penalty: NotNegative
    similarity: Component | None
    prefers: Component | None
    accepts: Component | None


class _Checkpoint(TypedDict):
    monitor: str | None
    mode: Directions
    every_minutes: NotNegative | None
    keep: Count


class _Optimizer(TypedDict):
    lr: Positive
    weight_decay: NotNegative
    rho: Fraction
    eps: NotNegative
    fused: bool | None


class _Scheduler(TypedDict):
    interval: Literal["step", "epoch"]
    needs: Annotated[
        Mapping[str, Literal["total_steps", "steps_per_epoch"]],
        "arguments of the schedule, each total_steps or steps_per_epoch",
    ]
    schedule: Component


class _Schedule(TypedDict):
    factor: Positive
    patience: Count


class _EarlyStopping(TypedDict):
    monitor: str | None
    mode: Directions
    patience: Count


class _Explain(TypedDict):
    measures: Annotated[
        str | Sequence[str], "names of measures, such as [erasure,alignment]; explain=all has all of them"
    ]
    sentences: Size
    steps: Size
    epsilon: Fraction
    alignments: FilePath | None
    reverse: FilePath | None


class _Tune(TypedDict):
    trials: Size
    seed: Seed
    space: Mapping[str, str] | None
    sampler: Component
    pruner: Component | None


class _Pruner(TypedDict):
    n_startup_trials: Count
    n_warmup_steps: Count


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


class _Trainer(TypedDict):
    accelerator: Literal["auto", "cpu", "gpu", "cuda"]
    strategy: str | Component
    devices: Annotated[
        Any, Predicate(_is_devices), "a number of devices ≥ 1, a list of devices, auto, or -1 for all"
    ]
    num_nodes: Size
    precision: Annotated[Any, Predicate(lambda value: str(value) in PRECISIONS), ", ".join(PRECISIONS)]
    max_epochs: Size | Literal[-1]
    min_epochs: Count | None
    max_steps: Size | Literal[-1]
    min_steps: Count | None
    max_time: Annotated[
        Any, Predicate(_is_duration), "days:hours:minutes:seconds, such as 00:12:00:00, or null"
    ]
    gradient_clip_val: NotNegative | None
    gradient_clip_algorithm: Literal["norm", "value"] | None
    accumulate_grad_batches: Size
    val_check_interval: Share
    check_val_every_n_epoch: Size | None
    log_every_n_steps: Size
    limit_train_batches: Share
    limit_val_batches: Share
    limit_test_batches: Share
    limit_predict_batches: Share
    fast_dev_run: Size | bool
    deterministic: bool | Literal["warn"] | None
    benchmark: bool | None
    inference_mode: bool
    profiler: Literal["simple", "advanced", "pytorch"] | Component | None
    detect_anomaly: bool
    sync_batchnorm: bool
    reload_dataloaders_every_n_epochs: Count
    enable_autolog_hparams: bool
    model_registry: str | None


class Section(NamedTuple):
    """A section of the configuration."""

    own: type | None = None  # settings that its target does not take
    target: str | None = None  # class or function that receives the settings if the section has no `_target_`
    types: type | None = None  # types of arguments of a target outside attnlab
    supplied: tuple[str, ...] = ()  # arguments that attnlab passes, which are no settings
    optional: bool = False  # whether the configuration may lack the section, or have null in its place

    def signature(self, target: Any) -> Signature:
        """Return the settings of the section by name, if its `_target_` is this."""
        target = self.target if target is None else target
        known = Signature({}, target is not None)
        taken = signature(target) if isinstance(target, str) else known
        arguments = {name: each for name, each in taken.arguments.items() if name not in self.supplied}
        if self.types is not None and str(target).partition(".")[0] in UNTYPED:
            types = self.types.__annotations__
            taken_or_any = {name: arguments.get(name, Argument(Any)) for name in types}
            arguments |= {
                name: each._replace(type=types[name])
                for name, each in taken_or_any.items()
                if name in arguments or taken.open
            }
        own = {} if self.own is None else self.own.__annotations__
        meanings = entries(inspect.getdoc(self.own) or "")
        arguments |= {name: Argument(own[name], meaning=meanings.get(name, "")) for name in own}
        return Signature(arguments, taken.open)


TOKENIZER = Section(supplied=("texts",))
BUILT = ("state_size", "context_size", "input_size", "vocabulary_size")

SECTIONS = {
    "": Section(_Run),
    "paths": Section(_Paths),
    "data": Section(),
    "tokenizer": TOKENIZER,
    "target_tokenizer": TOKENIZER._replace(optional=True),
    "embedding": Section(_Embedding, "attnlab.nn.embedding.TokenEmbedding", supplied=("vocabulary_size",)),
    "encoder": Section(_Matched, supplied=("input_size",)),
    "features": Section(supplied=("is_feature", "input_size", "memory_size", "make_encoder")),
    "bridge": Section(supplied=("memory_size", "encoder_layers", "size", "layers", "states_per_layer")),
    "attention": Section(_Matched, supplied=("query_size", "memory_size", "normaliser")),
    "attention.score": Section(supplied=("query_size", "memory_size", "normaliser")),
    "normaliser": Section(target="attnlab.nn.attention.normalisers.Entmax"),
    "decoder": Section(supplied=("input_size", "attention")),
    "readout": Section(_Tied, supplied=BUILT),
    "optimizer": Section(types=_Optimizer, supplied=("params",)),
    "scheduler": Section(_Scheduler),
    "scheduler.schedule": Section(
        types=_Schedule, supplied=("optimizer", "total_steps", "steps_per_epoch", "T_max")
    ),
    "teacher_forcing": Section(target="attnlab.training.teacher_forcing.TeacherForcing"),
    "batching": Section(
        target="attnlab.data.datamodule.Seq2SeqData",
        supplied=("corpus", "vocabularies", "with_copy_ids", "seed"),
    ),
    "loss": Section(_Loss),
    "distillation": Section(_Distillation, optional=True),
    "bleu": Section(_Bleu),
    "search": Section(
        _Search, target="attnlab.decoding.translator.Translator", supplied=("vocabularies", "reranking")
    ),
    "reranking": Section(_Reranking),
    "init": Section(_Initialisation, optional=True),
    "checkpoint": Section(_Checkpoint),
    "trainer": Section(
        target="lightning.Trainer",
        types=_Trainer,
        supplied=(
            *("logger", "callbacks", "plugins", "default_root_dir", "enable_checkpointing", "barebones"),
            *("enable_progress_bar", "enable_model_summary", "use_distributed_sampler", "overfit_batches"),
            "num_sanity_val_steps",
        ),
    ),
    "callbacks": Section(optional=True),
    "callbacks.attention_figures": Section(
        target="attnlab.training.callbacks.AttentionFigures", supplied=("run",), optional=True
    ),
    "callbacks.attention_weights": Section(
        target="attnlab.training.callbacks.AttentionWeights", supplied=("run",), optional=True
    ),
    "callbacks.early_stopping": Section(
        target="lightning.pytorch.callbacks.EarlyStopping", types=_EarlyStopping, optional=True
    ),
    "callbacks.averaging": Section(target="attnlab.training.callbacks.WeightAveraging", optional=True),
    "logger": Section(optional=True),
    **{
        f"logger.{name}": Section(
            target=f"attnlab.training.loggers.{name}_logger", supplied=("run", "config"), optional=True
        )
        for name in ("wandb", "tensorboard", "mlflow")
    },
    "explain": Section(_Explain, optional=True),
    "tune": Section(_Tune, optional=True),
    "tune.pruner": Section(types=_Pruner, optional=True),
}
"""The sections by dotted name."""
