"""Types of settings: the values that an argument of a constructor allows. Imports no torch.

A setting is checked against the annotation of the argument that receives it, before any data is read. The
last element of an annotation may be a text that completes "must be …"; without one it is derived from the
type and its bounds. The classes below declare the settings that no constructor of attnlab takes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Gt, Le, Lt, Predicate

Size = Annotated[int, Ge(1)]
Count = Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Odd = Annotated[int, Ge(1), Predicate(lambda value: value % 2 == 1), "an odd number ≥ 1"]

Finite = Annotated[float, "a number"]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
AtLeastOne = Annotated[float, Ge(1)]
Probability = Annotated[float, Ge(0), Le(1)]
Fraction = Annotated[float, Ge(0), Lt(1)]
PositiveFraction = Annotated[float, Gt(0), Le(1)]


def _is_range(value: Sequence[int]) -> bool:
    return len(value) == 2 and 1 <= value[0] <= value[1]


Lengths = Annotated[
    Sequence[int],
    Predicate(_is_range),
    "two whole numbers, the shortest and the longest length, such as [3,12]",
]


def _is_path(value: str) -> bool:
    return bool(value.strip()) and "\0" not in value


FilePath = Annotated[str, Predicate(_is_path), "the path of a file"]
FolderPath = Annotated[
    str,
    Predicate(lambda value: _is_path(value) and "://" not in value),
    "the path of a folder, local or on a shared file system; object stores such as s3:// are not supported",
]

Component = Annotated[dict[str, Any], Predicate(lambda node: "_target_" in node), "a section with a _target_"]
"""A section from which another object is built."""

Share = Annotated[PositiveFraction | Size, "a share in (0, 1] or a whole number of batches ≥ 1"] | None
Direction = Literal["min", "max"]


class RunSettings(TypedDict, total=False):
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


class PathSettings(TypedDict, total=False):
    """Folders that attnlab writes to."""

    output: FolderPath
    cache: FolderPath


class EmbeddingSettings(TypedDict, total=False):
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


class MatchSettings(TypedDict, total=False):
    """Another option, whose number of parameters the chosen one gets."""

    match: Component | None


class ReadoutSettings(TypedDict, total=False):
    """True if the readout shares the weights of the target embedding."""

    tied: bool


RunLocation = Annotated[
    str, Predicate(lambda value: bool(value.strip())), "a run directory or a checkpoint file"
]

InitSettings = TypedDict(
    "InitSettings",
    {
        "from": RunLocation | None,
        "freeze": Annotated[
            Sequence[str], "a list of parts of the network, such as [encoder,source_embedding]"
        ],
        "shrink": PositiveFraction,
    },
    total=False,
)
InitSettings.__doc__ = """Initial weights from another run.

Args:
    from: run directory or checkpoint file to start from; null for random weights.
    freeze: parts that are not trained.
    shrink: factor of the loaded weights, also in frozen parts.
"""


class SearchSettings(TypedDict, total=False):
    """Search for the outputs.

    Args:
        max_length: maximum number of output tokens, EOS excluded; null for 1.5 times the longest training or
            validation target, at least 100.
    """

    max_length: Size | None


class BleuSettings(TypedDict, total=False):
    """BLEU of the outputs.

    Args:
        tokenize: sacreBLEU's tokenizer; null for one that fits the script of the references: 13a, zh, or char
            for other scripts without spaces between words.
    """

    tokenize: (
        Literal["13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"] | None
    )


class DataSettings(TypedDict, total=False):
    """Settings of every dataset.

    Args:
        metrics: scores of decoded texts besides those of every dataset; [wer,ser] replace BLEU, chrF and the
            edit distance.
    """

    metrics: Sequence[str]


class RerankingSettings(TypedDict, total=False):
    """Orders of the hypotheses of a search."""

    coverage_penalty: NotNegative
    similarity: Component | None
    prefers: Component | None
    accepts: Component | None


class CheckpointSettings(TypedDict, total=False):
    """Checkpoints of a run."""

    monitor: str | None
    mode: Direction
    every_minutes: NotNegative | None
    keep: Count


class OptimizerSettings(TypedDict, total=False):
    """Arguments of torch's optimizers, whose own annotations allow every number."""

    lr: Positive
    weight_decay: NotNegative
    rho: Fraction
    eps: NotNegative
    fused: bool | None


class SchedulerSettings(TypedDict, total=False):
    """When and how a schedule is built."""

    interval: Literal["step", "epoch"]
    needs: Annotated[
        Mapping[str, Literal["total_steps", "steps_per_epoch"]],
        "arguments of the schedule, each total_steps or steps_per_epoch",
    ]
    schedule: Component


class ScheduleSettings(TypedDict, total=False):
    """Arguments of torch's schedules."""

    factor: Positive
    patience: Count


class EarlyStoppingSettings(TypedDict, total=False):
    """Arguments of Lightning's EarlyStopping."""

    monitor: str | None
    mode: Direction
    patience: Count


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


class TrainerSettings(TypedDict, total=False):
    """Arguments of Lightning's Trainer, whose own annotations allow more."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda"]
    strategy: str | Component
    devices: Annotated[
        Any, Predicate(_is_devices), "a number of devices ≥ 1, a list of devices, auto, or -1 for all"
    ]
    precision: Annotated[Any, Predicate(lambda value: str(value) in PRECISIONS), ", ".join(PRECISIONS)]
    max_epochs: Size | Literal[-1]
    max_steps: Size | Literal[-1, "auto"]
    max_time: Annotated[
        Any, Predicate(_is_duration), "days:hours:minutes:seconds, such as 00:12:00:00, or null"
    ]
    gradient_clip_val: NotNegative | None
    accumulate_grad_batches: Size
    val_check_interval: Share | Literal["auto"]
    check_val_every_n_epoch: Size | None
    log_every_n_steps: Size
    limit_train_batches: Share
    limit_val_batches: Share
    limit_test_batches: Share
    profiler: Literal["simple", "advanced", "pytorch"] | Component | None
