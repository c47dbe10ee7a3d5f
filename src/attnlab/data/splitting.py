"""Random splits of a corpus, and random examples in splits without a common source."""

import logging
import random
import unicodedata
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.mapped import Store, computed, hash_texts, select, text_blocks
from attnlab.errors import UserError

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")

DRAWS = 1000  # A split is too large if this many draws of a shape are all in splits drawn before

Example = TypeVar("Example")
Shape = TypeVar("Shape")
DrawShape = Callable[[random.Random], Shape]
Positions = NDArray[np.int64]
TestSets = Sequence[Pair] | Mapping[str, Sequence[Pair]]  # A test set, or several by name


def split(
    pairs: Sequence[Example],
    *,
    val_fraction: float,
    test_fraction: float = 0.0,
    seed: int,
    groups: Sequence[Hashable] | None = None,
) -> tuple[list[Example], list[Example], list[Example]]:
    """Split pairs, or other examples, at random into training, validation and test.

    Args:
        pairs: N pairs.
        test_fraction: share of the pairs in the test split. A split with a fraction above 0 gets at least one
            pair if the groups allow it.
        groups: the group of each pair, [N]; pairs of one group stay in one split, and the sizes are as close
            to the fractions as that permits. None: each pair is a group.
    """
    numbers: dict[Hashable, int] = {}
    keys = zip(range(len(pairs)) if groups is None else groups, pairs, strict=True)
    group_of = np.array([numbers.setdefault(key, len(numbers)) for key, _ in keys], np.int64)
    parts = split_groups(group_of, val_fraction=val_fraction, test_fraction=test_fraction, seed=seed)
    train, val, test = ([pairs[position] for position in part.tolist()] for part in parts)
    return train, val, test


def split_groups(
    groups: NDArray[np.int64], *, val_fraction: float, test_fraction: float, seed: int
) -> tuple[Positions, Positions, Positions]:
    """Return the positions of the training, validation and test pairs of `split`.

    Args:
        groups: number of the group of each pair, [N]; numbered from 0 in the order of their first pairs.
    """
    if not (0 <= val_fraction < 1 and 0 <= test_fraction < 1 and val_fraction + test_fraction < 1):
        raise UserError(
            f"data.val_fraction={val_fraction} and data.test_fraction={test_fraction} are not valid: "
            "both must be at least 0, and their sum below 1"
        )
    sizes = np.bincount(groups)
    shuffled = array("q", range(len(sizes)))
    random.Random(seed).shuffle(shuffled)
    val_goal, test_goal = (
        max(1, round(len(groups) * fraction)) if fraction > 0 else 0
        for fraction in (val_fraction, test_fraction)
    )
    split_of = np.zeros(len(sizes), np.int8)
    val_size = test_size = 0
    for group in shuffled:
        size = int(sizes[group])
        if _is_closer(test_size, size, test_goal):
            split_of[group] = 2
            test_size += size
        elif _is_closer(val_size, size, val_goal):
            split_of[group] = 1
            val_size += size
        elif test_size >= test_goal and val_size >= val_goal:
            break  # all other groups are training groups
    place = np.empty(len(sizes), np.int64)
    place[np.frombuffer(shuffled, np.int64)] = np.arange(len(sizes))
    order = np.argsort(place[groups], kind="stable")
    split_of_pair = split_of[groups[order]]
    train, val, test = (order[split_of_pair == number] for number in range(3))
    return train, val, test


def _is_closer(size: int, added: int, goal: int) -> bool:
    """Return whether adding `added` pairs brings a split of `size` pairs closer to its goal."""
    return abs(goal - size - added) < abs(goal - size)


def split_off(
    pairs: Sequence[Pair],
    val: Sequence[Pair] | None,
    test: TestSets | None,
    *,
    files: tuple[Path, ...],
    val_fraction: float,
    test_fraction: float,
    seed: int,
) -> Corpus:
    """Return the corpus of these pairs; validation and test pairs that are None are split off at random.

    Pairs whose sources differ only in case, punctuation, symbols and white space stay in one split. (A
    tokenizer that drops more, such as digits, can still make sources of different splits equal.)
    """
    fractions = {
        "validation": val_fraction if val is None else 0.0,
        "test": test_fraction if test is None else 0.0,
    }
    if not any(fractions.values()):
        return Corpus(train=pairs, val=val or [], test=test or [], files=files)

    def compute(store: Store) -> None:
        for name, positions in zip(SPLITS, _split_sources(pairs, fractions, seed), strict=True):
            store.append(name, positions)

    key = {"fractions": fractions, "seed": seed, "unicode": unicodedata.unidata_version}
    store = computed(pairs, key, compute, noun="the splits")
    train, new_val, new_test = (select(pairs, store.array(name)) for name in SPLITS)
    return Corpus(
        train=train, val=new_val if val is None else val, test=new_test if test is None else test, files=files
    )


def _split_sources(
    pairs: Sequence[Pair], fractions: Mapping[str, float], seed: int
) -> tuple[Positions, Positions, Positions]:
    """Split pairs at random; pairs whose sources have equal keys stay together."""
    dropped = _Dropped()
    sources = chain.from_iterable(text_blocks(pairs, "source"))
    hashes = hash_texts((_source_key(source, dropped) for source in sources), len(pairs))
    _, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    groups = np.argsort(np.argsort(first))[numbers]  # [N], numbered in the order of their first pairs
    train, val, test = split_groups(
        groups, val_fraction=fractions["validation"], test_fraction=fractions["test"], seed=seed
    )
    sizes = {"training": len(train), "validation": len(val), "test": len(test)}
    empty = [name for name, size in sizes.items() if size == 0 and fractions.get(name, 1) > 0]
    if empty:
        message = (
            f"{' and '.join(empty)} data is empty: {len(pairs)} pairs with {len(first)} different "
            "sources (without case, punctuation and white space), and pairs with equal sources stay in "
            "one split. Provide more data, or separate files by data.train, data.val and data.test"
        )
        if empty != ["test"]:
            raise UserError(message)
        log.warning("%s", message)
    return train, val, test


class _Dropped(dict[int, int | None]):
    """Table for `str.translate` that deletes punctuation and symbols."""

    def __missing__(self, character: int) -> int | None:
        is_dropped = unicodedata.category(chr(character))[0] in {"P", "S"}
        return self.setdefault(character, None if is_dropped else character)


def _source_key(source: str, dropped: _Dropped) -> str:
    """Return a source without case, punctuation and symbols and with single spaces."""
    folded = source.casefold()
    return " ".join(folded.translate(dropped).split()) or folded


def draw_disjoint(
    splits: Mapping[str, tuple[int, DrawShape[Shape]]],
    example: Callable[[random.Random, Shape], Pair],
    *,
    seed: int,
) -> dict[str, list[Pair]]:
    """Draw the examples of each split, in the order of the splits.

    Each split has its own random generator and excludes the sources of the splits before it. Settings of a
    split therefore do not change those before it. Within a split a source may repeat.
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
