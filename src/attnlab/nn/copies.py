"""Rows of a tensor that are copies of each other, so that a product with them is computed once.

The hypotheses of a beam often extend the same hypothesis.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from attnlab.types import map_tensors


class Copies:
    """Which rows of a tensor [B, Q, …] are equal.

    Args:
        numbers: [B, Q] int64, equal for equal rows.
    """

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers.flatten()  # [B Q]

    @cached_property
    def distinct(self) -> tuple[Tensor, Tensor]:
        """One row of each number [n], and which of these equals each row [B Q]."""
        distinct, places = torch.unique(self.numbers, return_inverse=True)
        rows = torch.empty_like(distinct)
        rows[places] = torch.arange(len(places), device=places.device)
        return rows, places


def mark_copies(x: Tensor, copies: Copies) -> None:
    """Record which rows of x [B, Q, …] are equal, until x is changed in place."""
    if not x.is_inference():  # such tensors do not count their changes
        x.copies = copies, x._version  # type: ignore[attr-defined]


def marked_copies(x: Tensor) -> Copies | None:
    """Return which rows of x [B, Q, …] are equal; None if that is not known."""
    copies, version = getattr(x, "copies", (None, None))
    return copies if copies is not None and version == x._version else None


def select_hypotheses(tree: Any, sentences: Tensor, beams: Tensor) -> Any:
    """Select hypotheses from every tensor [B', Q', …] of a nested tuple, and mark their copies.

    Args:
        tree: the tensors; other leaves stay.
        sentences: positions of the sentences, [B].
        beams: positions of the hypotheses of each sentence, [B, Q].
    """
    copies: dict[int, Copies] = {}  # by Q'

    def pick(part: Tensor) -> Tensor:
        size = part.size(1)
        if size not in copies:
            copies[size] = Copies(sentences[:, None] * size + beams)
        rows = part.flatten(0, 1).index_select(0, copies[size].numbers)  # [B Q, …]
        selected = rows.view(*beams.shape, *part.shape[2:])
        mark_copies(selected, copies[size])
        return selected

    return map_tensors(pick, tree)
