"""Selection of the operator implementations: PyTorch's own or the fused ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from attnlab.nn.fused.graphs import LoopGraphs

Product = Callable[[Tensor], Tensor]
"""The map x [N, K] → x Wᵀ + b [N, M] for a fixed weight and bias."""


class Kernels:
    """The implementations that layers use inside `with kernels.active()`.

    Outside any such block, and with `fused=False`, every layer is plain PyTorch.

    Args:
        fused: use the operators of this package where they apply.
        prepack: store every weight in the layout of its matrix products when it is first used without
            gradients, and reuse it as long as this object exists. It pays off for many products of few rows,
            as in a search; a weight that changes is packed again.
        graphs: captures the loop of the decoder; None to launch its kernels one by one.
    """

    def __init__(self, *, fused: bool, prepack: bool = False, graphs: LoopGraphs | None = None) -> None:
        self.fused = fused
        self.graphs = graphs
        self.prepacked: dict[Any, tuple[Tensor, Product]] | None = {} if fused and prepack else None

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
