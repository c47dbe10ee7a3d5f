"""Selection of the operator implementations: PyTorch's own or the fused ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]
"""The map x [N, K] → x Wᵀ + b [N, M] for a fixed weight and bias."""


MIN_ROWS = 32
"""With fewer rows, the operators of a step take hardly longer than it takes to start them."""

MIN_WEIGHT_OF_FEW_ROWS = 2**19
"""Elements of the smallest weight that is prepacked for few rows, whose product takes half as long then."""


class Kernels:
    """The implementations that layers use inside `with kernels.active()`.

    Outside any such block, and with `fused=False`, every layer is plain PyTorch.

    Args:
        fused: use the operators of this package where they apply.
        prepack: store every weight in the layout of its matrix products when it is first used without
            gradients, and reuse it as long as this object exists. It pays off for many products of few rows,
            as in a search; a weight that changes is packed again.
    """

    def __init__(self, *, fused: bool, prepack: bool = False) -> None:
        self.fused = fused
        self.min_weight: float = 0 if fused else math.inf  # smaller ones are multiplied by PyTorch
        self.prepacked: dict[Any, tuple[Tensor, Product]] | None = {} if fused and prepack else None
        self._of_few_rows: Kernels | None = None
        if self.prepacked is not None:
            self._of_few_rows = Kernels(fused=False)
            self._of_few_rows.min_weight = MIN_WEIGHT_OF_FEW_ROWS
            self._of_few_rows.prepacked = self.prepacked

    def of_step(self, rows: int, device: str) -> Kernels:
        """Return the implementations of one step of a search with so many hypotheses.

        In fp32, a step of few rows consists of PyTorch's own operators, except for products with large
        weights. In mixed precision, prepacking saves casts of the weights.
        """
        if rows >= MIN_ROWS or self._of_few_rows is None or torch.is_autocast_enabled(device):
            return self
        return self._of_few_rows

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use these implementations inside the block."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)


_PLAIN = Kernels(fused=False)
_ACTIVE: ContextVar[Kernels] = ContextVar("kernels", default=_PLAIN)


def active_kernels() -> Kernels:
    """Return the implementations selected by the innermost `Kernels.active` block."""
    return _ACTIVE.get()
