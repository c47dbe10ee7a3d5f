"""The autograd function of the fast loops: a forward and a backward pass without a graph of their steps.

Inputs and saved tensors are trees: nested (named) tuples and lists of tensors and None.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from attnlab.fast import graphs


class Work(Protocol):
    """A computation with its backward pass, both of which compute on tensors alone."""

    @property
    def save(self) -> bool:
        """True if a backward pass follows, which needs saved tensors."""

    @property
    def key(self) -> Hashable:
        """Everything but the tensors that determines the computation; None if it cannot be repeated."""

    def forward(self, gates: Tensor, inputs: Any) -> tuple[tuple[Tensor, ...], Any]:
        """Return the outputs for gates [N, gates], and what the backward pass needs beside the inputs."""

    def backward(
        self, inputs: Any, saved: Any, d_outputs: Sequence[Tensor | None]
    ) -> tuple[Tensor | None, Any]:
        """Return the gradients of the gates [N, gates] and of the inputs, a tree with as many leaves."""


def run(work: Work, gates: Tensor, inputs: Any) -> tuple[Tensor, ...]:
    """Return the outputs of a computation, with its backward pass; on a GPU by CUDA graphs.

    Args:
        gates: input gates of all steps [N, gates], which the backward pass does not need.
    """
    tensors, structure = tree_flatten(inputs)
    return _Function.apply(work, structure, gates, *tensors)  # type: ignore[no-any-return,no-untyped-call]


class _Function(Function):
    @staticmethod
    def forward(
        ctx: Any, work: Work, structure: Any, gates: Tensor, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.work, ctx.structure, ctx.count = work, structure, len(tensors)
        ctx.set_materialize_grads(False)
        lease = graphs.lease(work, structure, gates, tensors) if gates.is_cuda and work.save else None
        ctx.lease = lease
        if lease is not None and lease.graphs is not None:
            return lease.graphs.forward([gates, *tensors])
        outputs, saved = work.forward(gates, tree_unflatten(tensors, structure))
        if work.save:
            parts, ctx.saved_structure = tree_flatten(saved)
            ctx.save_for_backward(*tensors, *parts)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_outputs: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.lease is not None:
            gradients = ctx.lease.graphs.backward(d_outputs)
            ctx.lease.end()
        else:
            inputs = tree_unflatten(ctx.saved_tensors[: ctx.count], ctx.structure)
            saved = tree_unflatten(ctx.saved_tensors[ctx.count :], ctx.saved_structure)
            gradients = ctx.work.backward(inputs, saved, d_outputs)
        return None, None, *tree_leaves(gradients)
