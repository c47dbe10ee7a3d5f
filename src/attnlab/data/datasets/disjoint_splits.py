"""Random examples in splits that have no source in common."""

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from attnlab.data.corpus import Pair
from attnlab.errors import UserError

DRAWS = 1000
"""A split is too large if this many draws of a shape are all in splits drawn before."""

Shape = TypeVar("Shape")
DrawShape = Callable[[random.Random], Shape]


def draw_disjoint(
    splits: Mapping[str, tuple[int, DrawShape[Shape]]],
    example: Callable[[random.Random, Shape], Pair],
    *,
    seed: int,
) -> dict[str, list[Pair]]:
    """Draw the examples of each split, in the order of the splits.

    Each split has its own random generator and excludes the sources of the splits before it. Settings of a
    split therefore do not change those before it. Within a split a source may repeat.

    Args:
        splits: the size of each split, and a function that draws the shape of an example, such as its length.
        example: draws an example of a shape; repeated until its source is in no earlier split.
        seed: seed of the generators, with the name of the split.
    """
    taken: set[str] = set()
    drawn: dict[str, list[Pair]] = {}
    for name, (size, draw_shape) in splits.items():
        rng = random.Random(f"{seed} {name}")
        drawn[name] = []
        for _ in range(size):
            shape = draw_shape(rng)
            pair = next((new for _ in range(DRAWS) if (new := example(rng, shape)).source not in taken), None)
            if pair is None:
                raise UserError(
                    f"the {name} split: the other splits contain all or nearly all inputs of the form "
                    f"{shape}. Increase the number of symbols or the shortest lengths, or reduce the size of "
                    "the splits"
                )
            drawn[name].append(pair)
        taken.update(pair.source for pair in drawn[name])
    return drawn
