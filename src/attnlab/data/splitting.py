"""Random splits of a corpus, and filters of its training pairs."""

import logging
import random
import unicodedata
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Annotated, TypedDict, TypeVar

from annotated_types import Ge

from attnlab.data.corpus import Corpus, Pair
from attnlab.errors import UserError
from attnlab.settings import Count, Fraction, Size

log = logging.getLogger(__name__)

Example = TypeVar("Example")
TestSets = list[Pair] | dict[str, list[Pair]]
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
    if not (0 <= val_fraction < 1 and 0 <= test_fraction < 1 and val_fraction + test_fraction < 1):
        raise UserError(
            f"data.val_fraction={val_fraction} and data.test_fraction={test_fraction} are not valid: "
            "both must be at least 0, and their sum below 1"
        )
    members: dict[Hashable, list[Example]] = {}
    for key, pair in zip(range(len(pairs)) if groups is None else groups, pairs, strict=True):
        members.setdefault(key, []).append(pair)
    shuffled = list(members.values())
    random.Random(seed).shuffle(shuffled)

    train: list[Example] = []
    val: list[Example] = []
    test: list[Example] = []
    val_size, test_size = (
        max(1, round(len(pairs) * fraction)) if fraction > 0 else 0
        for fraction in (val_fraction, test_fraction)
    )
    for group in shuffled:
        if _is_closer(len(test), len(group), test_size):
            test += group
        elif _is_closer(len(val), len(group), val_size):
            val += group
        else:
            train += group
    return train, val, test


def _is_closer(size: int, added: int, goal: int) -> bool:
    """Return whether adding `added` pairs brings a split of `size` pairs closer to its goal."""
    return abs(goal - size - added) < abs(goal - size)


def split_off(
    pairs: list[Pair],
    val: list[Pair] | None,
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
    train: list[Pair] = pairs
    split_val: list[Pair] = []
    split_test: list[Pair] = []
    if any(fractions.values()):
        groups = _source_keys([pair.source for pair in pairs])
        train, split_val, split_test = split(
            pairs,
            val_fraction=fractions["validation"],
            test_fraction=fractions["test"],
            seed=seed,
            groups=groups,
        )
        sizes = {"training": len(train), "validation": len(split_val), "test": len(split_test)}
        empty = [name for name, size in sizes.items() if size == 0 and fractions.get(name, 1) > 0]
        if empty:
            message = (
                f"{' and '.join(empty)} data is empty: {len(pairs)} pairs with {len(set(groups))} different "
                "sources (without case, punctuation and white space), and pairs with equal sources stay in "
                "one split. Provide more data, or separate files by data.train, data.val and data.test"
            )
            if empty != ["test"]:
                raise UserError(message)
            log.warning("%s", message)
    return Corpus(
        train=filter_pairs(train, max_tokens=max_tokens, max_ratio=max_ratio),
        val=split_val if val is None else val,
        test=split_test if test is None else test,
        files=files,
    )


def _source_keys(sources: list[str]) -> list[str]:
    """Return each source without case, punctuation and symbols and with single spaces.

    A source that consists of punctuation and symbols only, such as an emoji, is its own key.
    """
    folded = [source.casefold() for source in sources]
    dropped = {
        ord(character): None
        for character in set("".join(folded))
        if unicodedata.category(character)[0] in {"P", "S"}
    }
    return [" ".join(text.translate(dropped).split()) or text for text in folded]


def filter_pairs(pairs: list[Pair], *, max_tokens: int | None, max_ratio: float | None) -> list[Pair]:
    """Return the pairs that satisfy both limits, and log how many were dropped for which reason.

    Lengths are counted in white-space separated tokens, before the tokenizer of a run.
    """
    kept: list[Pair] = []
    too_long = too_different = 0
    for pair in pairs:
        shorter, longer = sorted((len(pair.source.split()), len(pair.target.split())))
        if max_tokens is not None and longer > max_tokens:
            too_long += 1
        elif max_ratio is not None and longer > max_ratio * shorter:
            too_different += 1
        else:
            kept.append(pair)
    if len(kept) < len(pairs):
        log.info(
            "dropped %d of %d training pairs: %d longer than data.max_tokens, %d above data.max_ratio",
            len(pairs) - len(kept),
            len(pairs),
            too_long,
            too_different,
        )
    if not kept:
        raise UserError(
            f"data.max_tokens={max_tokens} and data.max_ratio={max_ratio} drop all {len(pairs)} training "
            "pairs. Increase them, or set null for no limit"
        )
    return kept
