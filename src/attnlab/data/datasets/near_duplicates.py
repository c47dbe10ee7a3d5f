"""Which examples are near-duplicates of each other, so that none is tested on what it was trained on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from math import ceil

Tokens = frozenset[str]


def group(keys: Sequence[Hashable], views: Sequence[Sequence[Tokens]], *, threshold: float) -> list[int]:
    """The group of each example: examples land in one if a chain of likenesses joins them.

    Two are alike if their keys are equal, or if they share at least `threshold` (above 0, at most 1) of their
    tokens in one of the views: |A ∩ B| ≥ threshold · |A ∪ B|, Jaccard's index. An empty set is like none.
    """
    parents = list(range(len(keys)))

    def find(i: int) -> int:
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    first: dict[Hashable, int] = {}
    for i, key in enumerate(keys):
        parents[find(i)] = find(first.setdefault(key, i))
    for sets in views:
        for i, j in near(sets, threshold=threshold):
            parents[find(i)] = find(j)
    return [find(i) for i in range(len(keys))]


def near(sets: Sequence[Tokens], *, threshold: float) -> Iterator[tuple[int, int]]:
    """All pairs of sets with a Jaccard index of at least `threshold`.

    Exact. A set of n tokens that is like another has ≥ ⌈threshold · n⌉ of its tokens in it, so that the two
    share one of the n - ⌈threshold · n⌉ + 1 tokens of each that are the rarest of all: only sets with one of
    those in common are compared (Chaudhuri et al. 2006, prefix filtering).
    """
    counts = Counter(token for tokens in sets for token in tokens)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for i, tokens in enumerate(sets):
        rarest = sorted(tokens, key=lambda token: (counts[token], token))
        rarest = rarest[: len(tokens) - ceil(threshold * len(tokens)) + 1]
        for j in {j for token in rarest for j in holders[token]}:
            if len(tokens & sets[j]) >= threshold * len(tokens | sets[j]):
                yield i, j
        for token in rarest:
            holders[token].append(i)
