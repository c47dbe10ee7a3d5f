"""Other orders of what a search found: plain functions of its hypotheses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attnlab.data.corpus import Pair
from attnlab.types import Hypotheses

FLOOR = 1e-10
"""Where a source token is not looked at at all, so that its logarithm stays finite."""


def rerank(
    found: Hypotheses,
    pairs: Sequence[Pair],
    *,
    output_text: Callable[[Sequence[int], Pair], str],
    coverage_penalty: float = 0.0,
    accepts: Callable[[str], bool] | None = None,
) -> Hypotheses:
    """The hypotheses by both of the orders below, as far as they are asked for.

    Args:
        found: of each sentence, best first.
        pairs: the sentences.
        output_text: returns the final text of a hypothesis for a pair.
        coverage_penalty: β; 0 for the order found.
        accepts: the texts to prefer; None for no preference.
    """
    if coverage_penalty:
        found = by_coverage(found, coverage_penalty)
    if accepts is not None:
        rows = zip(found.tokens, pairs, strict=True)
        found = by_acceptance(found, [[output_text(ids, pair) for ids in row] for row, pair in rows], accepts)
    return found


def by_coverage(found: Hypotheses, penalty: float) -> Hypotheses:
    """The hypotheses by score + β Σ_j log min(Σ_i α_ij, 1), which punishes source tokens left unread.

    Wu et al. 2016 (arXiv 1609.08144), equation 14; β is the `penalty`. Hypotheses of a mechanism without
    weights all lose the same.
    """
    scores = [
        [
            score + penalty * float(weights.sum(dim=0).clamp(FLOOR, 1).log().sum())
            for score, weights in zip(*row, strict=True)
        ]
        for row in zip(found.scores, found.weights, strict=True)
    ]
    return _ordered(found._replace(scores=scores), [[-score for score in row] for row in scores])


def by_acceptance(
    found: Hypotheses, texts: Sequence[Sequence[str]], accepts: Callable[[str], bool]
) -> Hypotheses:
    """The hypotheses whose text [B × K] is accepted before those whose is not, else in their order."""
    return _ordered(found, [[not accepts(text) for text in row] for row in texts])


def _ordered(found: Hypotheses, keys: Sequence[Sequence[float]]) -> Hypotheses:
    """The hypotheses of each sentence from the lowest key to the highest, equals as they were."""
    orders = [sorted(range(len(row)), key=row.__getitem__) for row in keys]

    def arranged(part: list[list[Any]]) -> list[list[Any]]:
        return [[row[k] for k in order] for row, order in zip(part, orders, strict=True)]

    return Hypotheses(arranged(found.tokens), arranged(found.scores), arranged(found.weights))
