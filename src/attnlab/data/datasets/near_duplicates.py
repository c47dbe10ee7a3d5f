"""Grouping of near-duplicate examples, so that no test example is almost equal to a training example."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from math import ceil

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
    parents = list(range(len(keys)))

    def root(i: int) -> int:
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    first: dict[Hashable, int] = {}
    for i, key in enumerate(keys):
        parents[root(i)] = root(first.setdefault(key, i))
    for sets in views:
        for i, j in similar_pairs(sets, threshold=threshold):
            parents[root(i)] = root(j)
    return [root(i) for i in range(len(keys))]


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
