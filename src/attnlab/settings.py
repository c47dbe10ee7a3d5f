"""Types of settings: the values that an argument of a constructor allows. Imports no torch.

A setting is checked against the annotation of the argument that receives it, before any data is read. The
last element of an annotation may be a text that completes "must be …"; without one it is derived from the
type and its bounds. The classes below declare settings that no function of attnlab takes by their name.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Gt, Le, Lt, Predicate

Size = Annotated[int, Ge(1)]
Count = Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0), Le(2**32 - 1)]
Odd = Annotated[int, Ge(1), Predicate(lambda value: value % 2 == 1), "an odd number ≥ 1"]

Finite = Annotated[float, "a number"]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
LengthPenalty = Annotated[float, Ge(0), Le(10)]  # of 1,000 tokens, 10 gives 1e30
AtLeastOne = Annotated[float, Ge(1)]
Probability = Annotated[float, Ge(0), Le(1)]
Fraction = Annotated[float, Ge(0), Lt(1)]
PositiveFraction = Annotated[float, Gt(0), Le(1)]

Lengths = Annotated[
    Sequence[int],
    Predicate(lambda value: len(value) == 2 and 1 <= value[0] <= value[1]),
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
RunLocation = Annotated[str, Predicate(_is_path), "a run directory or a checkpoint file"]

Share = Annotated[PositiveFraction | Size, "a share in (0, 1] or a whole number of batches ≥ 1"]

Component = Annotated[dict[str, Any], Predicate(lambda node: "_target_" in node), "a section with a _target_"]
"""A section from which another object is built."""


Intervention = Literal["uniform", "shuffled", "argmax", "previous", "none"]
"""Values of `attention_override`; see `attnlab.nn.attention.interventions`."""


class RunSettings(TypedDict, total=False):
    """Settings outside all sections.

    Args:
        fused: hand-written backward passes and oneDNN products; false for plain PyTorch.
        overfit: train and validate on this many training pairs only, to find errors; null for all data.
        attention_bias: a bias inside the tanh of attention=additive and concat.
        attention_override: intervention in `attnlab evaluate`, or all of them.
    """

    name: str
    variant: str
    seed: Seed
    force: bool
    quick: bool
    fused: bool
    overfit: Size | None
    shared_vocabulary: bool
    attention_size: Size
    attention_bias: bool
    attention_override: Intervention | Literal["all"] | None


class PathSettings(TypedDict, total=False):
    """Folders that attnlab writes to."""

    output: FolderPath
    cache: FolderPath


Parts = Annotated[Sequence[str], "a list of parts of the network, such as [encoder,source_embedding]"]
InitSettings = TypedDict("InitSettings", {"from": RunLocation | None, "freeze": Parts}, total=False)
InitSettings.__doc__ = """Initial weights.

Args:
    from: run directory or checkpoint file to start from; null for random weights.
    freeze: parts that are not trained.
"""


def _is_devices(value: Any) -> bool:
    numbers = value if isinstance(value, list) else str(value).split(",")
    return value in ("auto", -1, "-1") or (
        bool(numbers)
        and all(re.fullmatch(r"\d+", str(number).strip()) for number in numbers)
        and (isinstance(value, list) or "," in str(value) or int(str(value)) >= 1)
    )


PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed", "32", "bf16", "16")
"""Precisions with weights in fp32, as checkpoints are evaluated. A Trainer of the user may have others."""


class TrainerSettings(TypedDict, total=False):
    """Arguments of Lightning's Trainer that attnlab reads itself, or of which Lightning allows too much."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda"]
    devices: Annotated[
        Any, Predicate(_is_devices), "a number of devices ≥ 1, a list of devices, auto, or -1 for all"
    ]
    precision: Annotated[Any, Predicate(lambda value: str(value) in PRECISIONS), ", ".join(PRECISIONS)]
    max_epochs: Size | Literal[-1]
    max_steps: Size | Literal[-1, "auto"]
    gradient_clip_val: NotNegative | None
    accumulate_grad_batches: Size
    val_check_interval: Share | Literal["auto"] | None
    check_val_every_n_epoch: Size | None


class OptimizerSettings(TypedDict, total=False):
    """Arguments of torch's optimizers, which would train with a learning rate of 0."""

    lr: Positive
