"""Random splits of a corpus, and filters of its training pairs."""

import hashlib
import logging
import random
import unicodedata
from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.mapped import BLOCK, MappedPairs, batched, select
from attnlab.errors import UserError
from attnlab.settings import Count, Fraction, Size

log = logging.getLogger(__name__)

Example = TypeVar("Example")
Positions = NDArray[np.int64]
TestSets = Sequence[Pair] | Mapping[str, Sequence[Pair]]
"""A test set, or several by name."""


class SplitSettings(TypedDict, total=False):
    """Settings that datasets pass on to `split_off`.

    Args:
        max_tokens: longest source or target of a training pair, in white-space separated tokens; None for
            any.
        max_ratio: largest ratio of the lengths of a training pair; None for any.
        val_fraction: share of the pairs in a validation split that is split off.
        test_fraction: share of the pairs in a test split that is split off.
        seed: seed of the split.
    """

    max_tokens: Size | None
    max_ratio: Annotated[float, Ge(1)] | None
    val_fraction: Fraction
    test_fraction: Fraction
    seed: Count


def split(
    pairs: Sequence[Example],
    *,
    val_fraction: float,
    test_fraction: float = 0.0,
    seed: int,
    groups: Sequence[Hashable] | None = None,
) -> tuple[list[Example], list[Example], list[Example]]:
    """Split pairs, or other examples, at random into training, validation and test.

    The result depends only on the pairs, their groups, the fractions and the seed.

    Args:
        pairs: N pairs.
        val_fraction: share of the pairs in the validation split.
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
    max_tokens: int | None = None,
    max_ratio: float | None = None,
    val_fraction: float = 0.1,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Corpus:
    """Return the corpus of these pairs; validation and test pairs that are None are split off at random.

    Pairs whose sources differ only in case, punctuation, symbols and white space stay in one split. (A
    tokenizer that drops more, such as digits, can still make sources of different splits equal.) Training
    pairs are filtered by `filter_pairs`. For the settings see `SplitSettings`.
    """
    fractions = {
        "validation": val_fraction if val is None else 0.0,
        "test": test_fraction if test is None else 0.0,
    }
    limits: dict[str, Any] = {"max_tokens": max_tokens, "max_ratio": max_ratio}

    def positions() -> dict[str, Positions | None]:
        parts: tuple[Positions | None, ...] = (None, None, None)
        if any(fractions.values()):
            parts = _split_sources(pairs, fractions, seed)
        return {"train": _filter(pairs, parts[0], **limits), "val": parts[1], "test": parts[2]}

    if isinstance(pairs, MappedPairs) and (any(fractions.values()) or any(limits.values())):

        def write(folder: Path) -> dict[str, Any]:
            for name, part in positions().items():
                if part is not None:
                    part.tofile(folder / name)
            return {}

        key = {"fractions": fractions, "seed": seed, **limits, "unicode": unicodedata.unidata_version}
        cached = pairs.cached(key, write, noun="the splits")
        parts = {
            name: pairs.view(cached, name) if (cached.folder / name).exists() else None
            for name in ("train", "val", "test")
        }
    else:
        parts = {name: None if part is None else select(pairs, part) for name, part in positions().items()}
    return Corpus(
        train=pairs if parts["train"] is None else parts["train"],
        val=(parts["val"] or []) if val is None else val,
        test=(parts["test"] or []) if test is None else test,
        files=files,
    )


def _split_sources(
    pairs: Sequence[Pair], fractions: Mapping[str, float], seed: int
) -> tuple[Positions, Positions, Positions]:
    """Split pairs at random; pairs whose sources have equal keys stay together."""
    groups = _source_groups(pairs)
    train, val, test = split_groups(
        groups, val_fraction=fractions["validation"], test_fraction=fractions["test"], seed=seed
    )
    sizes = {"training": len(train), "validation": len(val), "test": len(test)}
    empty = [name for name, size in sizes.items() if size == 0 and fractions.get(name, 1) > 0]
    if empty:
        message = (
            f"{' and '.join(empty)} data is empty: {len(pairs)} pairs with {groups.max() + 1} different "
            "sources (without case, punctuation and white space), and pairs with equal sources stay in "
            "one split. Provide more data, or separate files by data.train, data.val and data.test"
        )
        if empty != ["test"]:
            raise UserError(message)
        log.warning("%s", message)
    return train, val, test


def _source_groups(pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """Return a number for each source, [N], equal for equal keys, in the order of their first pairs.

    The keys are compared by 64-bit hashes: among 12 million, two are equal with a probability of 4e-6.
    """
    hashes = np.empty(len(pairs), np.int64)
    for start, block in zip(range(0, len(pairs), BLOCK), batched(pairs, BLOCK), strict=True):
        digests = (hashlib.blake2b(key.encode(), digest_size=8).digest() for key in _source_keys(block))
        hashes[start : start + len(block)] = np.frombuffer(b"".join(digests), np.int64)
    _, first, groups = np.unique(hashes, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[groups]


def _source_keys(pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield each source without case, punctuation and symbols and with single spaces.

    A source that consists of punctuation and symbols only, such as an emoji, is its own key.
    """
    folded = [pair.source.casefold() for pair in pairs]
    dropped = {
        ord(character): None
        for character in set("".join(folded))
        if unicodedata.category(character)[0] in {"P", "S"}
    }
    return (" ".join(text.translate(dropped).split()) or text for text in folded)


def filter_pairs(pairs: Sequence[Pair], *, max_tokens: int | None, max_ratio: float | None) -> Sequence[Pair]:
    """Return the pairs that satisfy both limits, and log how many were dropped for which reason.

    Lengths are counted in white-space separated tokens, before the tokenizer of a run.
    """
    kept = _filter(pairs, None, max_tokens=max_tokens, max_ratio=max_ratio)
    return pairs if kept is None else select(pairs, kept)


def _filter(
    pairs: Sequence[Pair], positions: Positions | None, *, max_tokens: int | None, max_ratio: float | None
) -> Positions | None:
    """Return which positions of pairs satisfy both limits of `filter_pairs`; None stands for all pairs."""
    if max_tokens is None and max_ratio is None:
        return positions
    chosen = pairs if positions is None else select(pairs, positions)
    kept: list[NDArray[np.bool_]] = []
    too_long = too_different = 0
    for block in batched(chosen, BLOCK):
        sizes = np.array([(len(pair.source.split()), len(pair.target.split())) for pair in block])
        shorter, longer = sizes.min(axis=1), sizes.max(axis=1)
        is_long = np.zeros(len(block), bool) if max_tokens is None else longer > max_tokens
        is_different = np.zeros(len(block), bool) if max_ratio is None else longer > max_ratio * shorter
        too_long += int(is_long.sum())
        too_different += int((is_different & ~is_long).sum())
        kept.append(~(is_long | is_different))
    places = np.flatnonzero(np.concatenate(kept))
    if len(places) < len(chosen):
        log.info(
            "dropped %d of %d training pairs: %d longer than data.max_tokens, %d above data.max_ratio",
            len(chosen) - len(places),
            len(chosen),
            too_long,
            too_different,
        )
    if not len(places):
        raise UserError(
            f"data.max_tokens={max_tokens} and data.max_ratio={max_ratio} drop all {len(chosen)} training "
            "pairs. Increase them, or set null for no limit"
        )
    return places if positions is None else positions[places]
