"""Multi-query associative recall (MQAR; Arora et al., 2023, arXiv 2312.04927) as a sequence-to-sequence task.

The source lists pairs of a key and its value, and then asks for each key once, at random places among
fillers: `k5 v9 k2 v7 _ k2 _ _ k5 _`. The target has the values in the order of the questions: `v7 v9`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from annotated_types import Ge

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.splitting import draw_disjoint
from attnlab.errors import UserError
from attnlab.settings import Count, Size

FILLER = "_"


def generate_recall(
    *,
    vocabulary: Annotated[int, Ge(2)],
    train_shape: Sequence[int],
    test_shapes: Mapping[str, Sequence[int]],
    train_size: Size = 10_000,
    val_size: Size = 500,
    test_size: Size = 1000,
    seed: Count = 0,
) -> Corpus:
    """Generate examples of associative recall.

    Args:
        vocabulary: number of keys and values together; one half are keys.
        train_shape: [length, pairs] of the sources of training and validation: S, and the number of pairs.
        test_shapes: [length, pairs] of each test set by its name.
        train_size: number of training sequences.
        val_size: number of validation sequences.
        test_size: number of sequences of each test set.
        seed: seed of the generators; runs with different seeds share their data.
    """
    half = vocabulary // 2

    def split(size: int, setting: str, shape: Sequence[int]) -> tuple[int, Callable[..., tuple[int, int]]]:
        match shape:
            case [int(length), int(pairs)] if 1 <= pairs <= half and 3 * pairs <= length:
                return size, lambda _: (length, pairs)
        raise UserError(
            f"data.{setting}={shape}: must be [length,pairs] with at most {half} pairs (half of "
            "data.vocabulary) and a length of at least three times that"
        )

    tests = {
        f"test/{name}": split(test_size, f"test_shapes.{name}", shape) for name, shape in test_shapes.items()
    }
    val, train = (split(size, "train_shape", train_shape) for size in (val_size, train_size))
    drawn = draw_disjoint(
        {**tests, "val": val, "train": train}, lambda rng, shape: _draw(rng, half, *shape), seed=seed
    )
    test = {name: drawn[f"test/{name}"] for name in test_shapes}
    return Corpus(train=drawn["train"], val=drawn["val"], test=test)


def _draw(rng: random.Random, half: int, length: int, pairs: int) -> Pair:
    """Draw an example; a target value is aligned to its place in the list of pairs."""
    keys = rng.sample(range(half), pairs)
    values = [rng.randrange(half) for _ in keys]
    source = [token for key, value in zip(keys, values, strict=True) for token in (f"k{key}", f"v{value}")]
    source += [FILLER] * (length - 2 * pairs)
    order = rng.sample(range(pairs), pairs)
    for asked, place in zip(order, sorted(rng.sample(range(2 * pairs, length), pairs)), strict=True):
        source[place] = f"k{keys[asked]}"
    return Pair(
        source=" ".join(source),
        target=" ".join(f"v{values[asked]}" for asked in order),
        alignment=tuple((2 * asked + 1, number) for number, asked in enumerate(order)),
    )
