"""Grouping of near-duplicate examples, so that no test example is almost equal to a training example."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from math import ceil

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Tokens = frozenset[str]


def group_near_duplicates(
    keys: Sequence[Hashable], views: Sequence[Sequence[Tokens]], *, threshold: float
) -> list[int]:
    """Return the group of each example: the connected components of the similarity graph.

    Two examples are similar if their keys are equal, or if the Jaccard index |A ∩ B| / |A ∪ B| of their
    token sets is at least `threshold` in one of the views. An empty set is similar to none.

    Args:
        keys: a key for each of N examples.
        views: the token set of each example, one list per view.
        threshold: minimum Jaccard index, above 0 and at most 1.

    Returns:
        A group number for each of the N examples.
    """
    first: dict[Hashable, int] = {}
    similar = [(i, first.setdefault(key, i)) for i, key in enumerate(keys)]
    similar += [pair for sets in views for pair in similar_pairs(sets, threshold=threshold)]
    if not similar:
        return []
    rows, columns = zip(*similar, strict=True)
    graph = coo_array((np.ones(len(similar)), (rows, columns)), shape=(len(keys), len(keys)))
    groups: list[int] = connected_components(graph, directed=False)[1].tolist()
    return groups


def similar_pairs(sets: Sequence[Tokens], *, threshold: float) -> Iterator[tuple[int, int]]:
    """Yield the indices of all pairs of sets with a Jaccard index of at least `threshold`.

    The result is exact. By prefix filtering (Chaudhuri et al. 2006) only sets that share one of their
    n - ⌈threshold · n⌉ + 1 rarest tokens are compared: a set of n tokens shares at least ⌈threshold · n⌉ of
    them with every similar set.
    """
    counts = Counter(token for tokens in sets for token in tokens)
    sets_with: defaultdict[str, list[int]] = defaultdict(list)
    for i, tokens in enumerate(sets):
        rarest = sorted(tokens, key=lambda token: (counts[token], token))
        rarest = rarest[: len(tokens) - ceil(threshold * len(tokens)) + 1]
        for j in {j for token in rarest for j in sets_with[token]}:
            if len(tokens & sets[j]) >= threshold * len(tokens | sets[j]):
                yield i, j
        for token in rarest:
            sets_with[token].append(i)
