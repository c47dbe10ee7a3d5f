"""Filtering of training pairs by length and by ratio of lengths."""

from __future__ import annotations

import logging

from attnlab.data.corpus import Pair
from attnlab.errors import UserError

log = logging.getLogger(__name__)


def filter_pairs(pairs: list[Pair], *, max_tokens: int | None, max_ratio: float | None) -> list[Pair]:
    """Return the pairs that satisfy both limits, and log how many were dropped for which reason.

    Lengths are counted in white-space separated tokens, before the tokenizer of a run.

    Args:
        pairs: training pairs.
        max_tokens: maximum length of the source and of the target; None for no limit.
        max_ratio: maximum ratio of the longer to the shorter text; None for no limit.

    Raises:
        UserError: if no pair is left.
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
