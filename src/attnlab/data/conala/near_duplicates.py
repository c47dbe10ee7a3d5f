"""Grouping of near-duplicate examples, so that no test example is almost equal to a training example."""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

Tokens = frozenset[str]

BLOCK = 1000
"""Sets that are compared with all others at a time."""


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
    """
    if not keys:
        return []
    first: dict[Hashable, int] = {}
    equal = np.array([(i, first.setdefault(key, i)) for i, key in enumerate(keys)]).T
    rows, columns = np.hstack([equal, *(similar_pairs(sets, threshold=threshold) for sets in views)])
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(keys), len(keys)))
    groups: list[int] = connected_components(graph, directed=False)[1].tolist()
    return groups


def similar_pairs(sets: Sequence[Tokens], *, threshold: float) -> NDArray[np.int64]:
    """Return the indices [2, pairs] of all pairs of sets with a Jaccard index of at least `threshold`."""
    numbers: dict[str, int] = {}
    tokens = [numbers.setdefault(token, len(numbers)) for each in sets for token in each]
    sizes = np.array([len(each) for each in sets])
    members = csr_array((np.ones(len(tokens)), tokens, np.cumsum([0, *sizes])), (len(sets), len(numbers)))
    found = []
    for start in range(0, len(sets), BLOCK):
        shared = (members[start : start + BLOCK] @ members.T).tocoo()  # |A ∩ B|
        rows, columns = shared.row + start, shared.col
        is_similar = shared.data >= threshold * (sizes[rows] + sizes[columns] - shared.data)
        found.append(np.stack([rows, columns])[:, is_similar & (columns < rows)])
    return np.hstack(found)
