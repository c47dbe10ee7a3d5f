"""Random examples in splits that have no source in common."""

import random
from collections.abc import Callable
from typing import TypeVar

from attnlab.data.corpus import Pair
from attnlab.errors import UserError

DRAWS = 1000
"""A split is too large if this many draws of a shape are all in splits drawn before."""

Shape = TypeVar("Shape")


class DisjointSplits:
    """Splits of a generated corpus.

    Each split has its own random generator and excludes the sources of the splits drawn before it. Settings
    of a split therefore do not change those before it. Within a split a source may repeat.

    Args:
        seed: seed of the generators.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._taken: set[str] = set()

    def draw(
        self,
        name: str,
        size: int,
        shape: Callable[[random.Random], Shape],
        example: Callable[[random.Random, Shape], Pair],
    ) -> list[Pair]:
        """Draw the examples of a split.

        Args:
            name: name of the split, part of its seed.
            size: number of examples.
            shape: draws the shape of an example, such as its length.
            example: draws an example of a shape; repeated until its source is in no earlier split.
        """
        rng = random.Random(f"{self._seed} {name}")
        pairs = [self._draw_new(name, rng, shape(rng), example) for _ in range(size)]
        self._taken.update(pair.source for pair in pairs)
        return pairs

    def _draw_new(
        self, name: str, rng: random.Random, shape: Shape, example: Callable[[random.Random, Shape], Pair]
    ) -> Pair:
        for _ in range(DRAWS):
            pair = example(rng, shape)
            if pair.source not in self._taken:
                return pair
        raise UserError(
            f"the {name} split: the other splits contain all or nearly all inputs of the form {shape}. "
            "Increase the number of symbols or the shortest lengths, or reduce the size of the splits"
        )
