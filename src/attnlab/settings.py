"""Types of settings: the values that an argument of a constructor allows. Imports no torch.

A command checks a setting against the annotation of the argument that receives it, before it starts a run.
The last element of an annotation may be a text that completes "must be …"; without one it is derived from the
type and its bounds.
"""

from collections.abc import Sequence
from typing import Annotated, Any

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
