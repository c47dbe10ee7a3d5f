"""What every loader of data returns, and how pairs are split."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attnlab.data.datasets.placeholders import Placeholders
from attnlab.errors import UserError

Alignment = tuple[tuple[int, int], ...]
"""Links between tokens, each (source, target), counted from 0 in the text alone, without SOS and EOS."""


class Pair(NamedTuple):
    """One example, as raw text."""

    source: str
    target: str
    alignment: Alignment | None = None
    """Which source tokens each target token comes from, where that is known."""
    reference: str | None = None
    """What outputs are scored against, where it is not what the tokenizer leaves of the target."""
    slots: Placeholders = ()
    """Names in both texts and what they stand for: put back into outputs before they are scored or shown."""
    quoted: tuple[str, ...] = ()
    """What the source quotes and an output may have to repeat."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """Raw text pairs in three disjoint splits.

    Raises `UserError` where there is nothing to train on or nothing to validate with; `test` may be empty.
    """

    train: list[Pair]
    val: list[Pair]
    test: list[Pair]
    scores: tuple[str, ...] = ()
    """Names of the scores these targets have beyond those every corpus has."""

    def __post_init__(self) -> None:
        for name, pairs in (("training", self.train), ("validation", self.val)):
            if not pairs:
                raise UserError(
                    f"the {name} split is empty ({len(self.train)} training, {len(self.val)} validation, "
                    f"{len(self.test)} test pairs): give more data, or other split sizes or fractions"
                )


def split(
    pairs: Sequence[Pair],
    *,
    val_fraction: float,
    test_fraction: float = 0.0,
    seed: int,
    groups: Sequence[Hashable] | None = None,
) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Deal pairs out at random to train, validation and test.

    `groups[i]` names the group of `pairs[i]`: all pairs of a group land in one split, and the fractions are
    met as closely as that allows. Without `groups` every pair stands alone. A fraction above zero asks for
    at least one pair. What lands where, and in which order, depends on the pairs, their groups and the seed
    alone. Raises `UserError` where the fractions leave nothing to train on.
    """
    if not (0 < val_fraction < 1 and 0 <= test_fraction < 1 and val_fraction + test_fraction < 1):
        raise UserError(
            f"data.val_fraction={val_fraction} and data.test_fraction={test_fraction} leave no split to "
            "validate with or to train on: both must be at least 0, the first above 0, and their sum below 1"
        )
    members: dict[Hashable, list[Pair]] = {}
    for key, pair in zip(range(len(pairs)) if groups is None else groups, pairs, strict=True):
        members.setdefault(key, []).append(pair)
    order = list(members.values())
    random.Random(seed).shuffle(order)

    train: list[Pair] = []
    val: list[Pair] = []
    test: list[Pair] = []
    val_quota = _quota(len(pairs), val_fraction)
    test_quota = _quota(len(pairs), test_fraction)
    for group in order:
        if _comes_closer(len(test), len(group), test_quota):
            test += group
        elif _comes_closer(len(val), len(group), val_quota):
            val += group
        else:
            train += group
    return train, val, test


def _quota(total: int, fraction: float) -> int:
    """Pairs a split should hold."""
    return max(1, round(total * fraction)) if fraction > 0 else 0


def _comes_closer(size: int, more: int, quota: int) -> bool:
    """Whether adding `more` to `size` brings it nearer to `quota`."""
    return abs(quota - size - more) < abs(quota - size)
