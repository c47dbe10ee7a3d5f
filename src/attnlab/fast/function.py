"""The autograd function of the fast loops: a forward and a backward pass without a graph of their steps."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.fast import graphs


class Work(Protocol):
    """A computation with its backward pass, both of which compute on tensors alone."""

    @property
    def save(self) -> bool:
        """True if a backward pass follows, which needs saved tensors."""

    @property
    def key(self) -> Hashable:
        """Everything but the tensors that determines the computation; None if it cannot be repeated."""

    def forward(
        self, gates: Tensor, tensors: Sequence[Any]
    ) -> tuple[tuple[Tensor, ...], list[Tensor | None]]:
        """Return the outputs for gates [N, gates], and what the backward pass needs beside `tensors`."""

    def backward(
        self, tensors: Sequence[Any], saved: Sequence[Any], d_outputs: Sequence[Tensor | None]
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of the gates [N, gates] and of the tensors, in their shapes."""


def run(work: Work, gates: Tensor, tensors: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Return the outputs of a computation, with its backward pass; on a GPU by CUDA graphs.

    Args:
        work: the computation.
        gates: input gates of all steps [N, gates], which the backward pass does not need.
        tensors: all other inputs.
    """
    return _Function.apply(work, gates, *tensors)  # type: ignore[no-any-return,no-untyped-call]


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, work: Work, gates: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        ctx.work, ctx.count = work, len(tensors)
        ctx.set_materialize_grads(False)
        ctx.lease = graphs.lease(work, gates, tensors) if gates.is_cuda and work.save else None
        if ctx.lease is not None:
            return ctx.lease.graphs.forward([gates, *tensors])  # type: ignore[no-any-return]
        outputs, saved = work.forward(gates, tensors)
        if work.save:
            ctx.save_for_backward(*tensors, *saved)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.lease is not None:
            gradients = ctx.lease.graphs.backward(d_outputs)
            ctx.lease.end()
        else:
            tensors, saved = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
            gradients = ctx.work.backward(tensors, saved, d_outputs)
        return None, *gradients
