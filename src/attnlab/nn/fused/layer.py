"""One recurrent layer, read forward and then back, a step at a time, without an autograd graph of the steps.

The rows of all steps lie in one buffer [N, …], step after step, and a step is a slice of it. Rows that end
earlier lie last in a step, so that a step is the first n rows of the running state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.nn.fused.linear import outer, prepare
from attnlab.nn.fused.rows import Rows

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


class LSTM:
    """i, f, o = σ(·), g = tanh(·), c' = f c + i g, h' = o tanh(c').

    The way back::

        dc' += dh' o (1 - tanh²c')
        di = dc' g i (1 - i)        df = dc' c f (1 - f)      the gradients of what goes into σ and tanh
        dg = dc' i (1 - g²)         do = dh' tanh(c') o (1 - o)
        dc = dc' f
    """

    kept = 6  # [i, f, g, o, tanh c', c]: what the way back needs, in columns of width H

    @staticmethod
    def forward(kept: Tensor, from_input: Tensor, from_state: Tensor, state: Sequence[Tensor]) -> None:
        """From the gates' two halves [n, 4H]; fills `kept` [n, 6H], and takes the state [n, H] a step on."""
        hidden, cell = state
        i, f, g, o, tanh, before = kept.chunk(6, dim=1)  # each [n, H]
        size = hidden.size(1)
        gates = kept[:, : 4 * size]
        torch.add(from_input, from_state, out=gates)
        g.mul_(2)
        gates.sigmoid_()
        g.mul_(2).sub_(1)
        before.copy_(cell)
        cell.mul_(f).addcmul_(i, g)
        torch.mul(o, tanh_(tanh.copy_(cell)), out=hidden)

    @staticmethod
    def backward(kept: Tensor, before: Tensor, d_state: Sequence[Tensor], d_gates: Sequence[Tensor]) -> None:
        """Fills the gates' gradients and takes those of the state back, but for the product's share."""
        d_hidden, d_cell = d_state
        i, f, g, o, tanh, cell = kept.chunk(6, dim=1)  # each [n, H]
        di, df, dg, do = d_gates[0].chunk(4, dim=1)  # each [n, H]
        sigmoid_backward(d_hidden * tanh, o, grad_input=do)
        d_cell += torch.ops.aten.tanh_backward(d_hidden * o, tanh)
        sigmoid_backward(d_cell * g, i, grad_input=di)
        sigmoid_backward(d_cell * cell, f, grad_input=df)
        tanh_backward(d_cell * i, g, grad_input=dg)
        d_cell *= f
        d_hidden.zero_()


class GRU:
    """r, z = σ(·), n = tanh(W_n x + r (U_n h + b)), h' = n + z (h - n).

    The way back::

        dn = dh' (1 - z) (1 - n²)           dz = dh' (h - n) z (1 - z)
        dr = dn (U_n h + b) r (1 - r)       dh = dh' z, and the product's share
        d(U_n h + b) = dn r
    """

    kept = 4  # [r, z, n, U_n h + b]

    @staticmethod
    def forward(kept: Tensor, from_input: Tensor, from_state: Tensor, state: Sequence[Tensor]) -> None:
        """From the gates' two halves [n, 3H]; fills `kept` [n, 4H], and takes the state [n, H] a step on."""
        (hidden,) = state
        r, z, n, candidate = kept.chunk(4, dim=1)  # each [n, H]
        size = 2 * hidden.size(1)
        gates = kept[:, :size]
        torch.add(from_input[:, :size], from_state[:, :size], out=gates)
        gates.sigmoid_()
        candidate.copy_(from_state[:, size:])
        torch.addcmul(from_input[:, size:], r, candidate, out=n)
        tanh_(n)
        hidden.sub_(n).mul_(z).add_(n)

    @staticmethod
    def backward(kept: Tensor, before: Tensor, d_state: Sequence[Tensor], d_gates: Sequence[Tensor]) -> None:
        """Fills the gates' gradients and takes that of the state back, but for the product's share."""
        (d_hidden,) = d_state
        r, z, n, candidate = kept.chunk(4, dim=1)  # each [n, H]
        d_input, d_product = d_gates
        dr, dz, dn = d_input.chunk(3, dim=1)  # each [n, H]
        d_new = torch.ops.aten.tanh_backward(d_hidden - d_hidden * z, n)  # [n, H]
        dn.copy_(d_new)
        sigmoid_backward(d_new * candidate, r, grad_input=dr)
        sigmoid_backward(d_hidden * (before - n), z, grad_input=dz)
        size = 2 * d_hidden.size(1)
        d_product[:, :size] = d_input[:, :size]
        torch.mul(d_new, r, out=d_product[:, size:])
        d_hidden *= z


KINDS: dict[str, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}


class Layer:
    """The recurrence of one layer: `step` forward through its rows, or `back` through them in reverse.

    Args:
        kind: "lstm" or "gru".
        weight: U [gates, H].
        bias: [gates].
        state: h (and c) before the first step, each [B, H].
        rows: N, of all steps together.
        dtype: of products and of what is handed on. Gates and states are in fp32 or wider.
        keep: what the way back needs.
    """

    def __init__(
        self,
        kind: str,
        weight: Tensor,
        bias: Tensor,
        state: Sequence[Tensor],
        rows: int,
        dtype: torch.dtype,
        *,
        keep: bool,
    ) -> None:
        self.kind = KINDS[kind]
        self.keep = keep
        self.product = prepare(weight, bias, dtype)
        wide = widest(dtype)
        self.state = [part.to(wide, copy=True) for part in state]
        size = weight.size(1)
        kept = rows if keep else len(state[0])
        self.kept = weight.new_empty(kept, self.kind.kept * size, dtype=wide)
        self.before = weight.new_empty(kept, size, dtype=dtype)  # h before each step
        self.outputs = weight.new_empty(rows, size, dtype=dtype)  # and after

    def step(self, rows: slice, from_input: Tensor) -> Tensor:
        """Read W x + b [n, gates] of the rows of one step; returns h [n, H]."""
        count = rows.stop - rows.start
        kept = rows if self.keep else slice(count)
        state = [part[:count] for part in self.state]
        before = self.before[kept]
        before.copy_(state[0])
        self.kind.forward(self.kept[kept], from_input, self.product(before), state)
        outputs = self.outputs[rows]
        outputs.copy_(state[0])
        return outputs


class LayerBack:
    """The way back through a `Layer`.

    Args:
        kind: "lstm" or "gru".
        weight: U [gates, H].
        kept: the layer's.
        before: the layer's.
        d_state: gradients of the last state, each [B, H] or None for zeros.
        shape: of a state, B and H.
    """

    def __init__(
        self,
        kind: str,
        weight: Tensor,
        kept: Tensor,
        before: Tensor,
        d_state: Sequence[Tensor | None],
        shape: tuple[int, int],
    ) -> None:
        self.kind = KINDS[kind]
        self.kept, self.before = kept, before
        self.product = prepare(weight.T, None, before.dtype)
        self.d_state = [
            kept.new_zeros(shape) if part is None else part.to(kept.dtype, copy=True) for part in d_state
        ]
        gates = [before.new_empty(len(kept), len(weight)) for _ in range(2 if self.kind is GRU else 1)]
        self.d_gates = gates
        self.d_input, self.d_product = gates[0], gates[-1]  # [N, gates]: of W x + b, and of U h + b

    def back(self, rows: slice) -> Tensor:
        """A step back, the gradient of what was handed on being in `d_state[0]`; returns d(W x + b)."""
        d_state = [part[: rows.stop - rows.start] for part in self.d_state]
        self.kind.backward(
            self.kept[rows], self.before[rows], d_state, [gates[rows] for gates in self.d_gates]
        )
        d_state[0].add_(self.product(self.d_product[rows]))
        return self.d_input[rows]

    def weights(self) -> tuple[Tensor, Tensor]:
        """The gradients of U and its offset, of all steps in one product."""
        return outer(self.d_product, self.before), self.d_product.sum(dim=0, dtype=self.kept.dtype)


def advance(kind: str, from_input: Tensor, from_state: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A single step, from which no gradient comes back.

    Args:
        kind: "lstm" or "gru".
        from_input: W x + b [..., gates].
        from_state: U h + b [..., gates].
        state: h (and c) before, each [..., H].

    Returns:
        The state after it, in fp32 or wider.
    """
    shape = state[0].shape
    wide = widest(from_state.dtype)
    new = [part.to(wide, copy=True).reshape(-1, shape[-1]) for part in state]
    kept = from_input.new_empty(len(new[0]), KINDS[kind].kept * shape[-1], dtype=wide)
    gates = from_input.expand(from_state.shape).reshape(len(kept), -1)
    KINDS[kind].forward(kept, gates, from_state.reshape(len(kept), -1), new)
    return tuple(part.view(shape) for part in new)


def recur(
    kind: str,
    gates: Tensor,
    weight: Tensor,
    bias: Tensor,
    state: Sequence[Tensor],
    counts: Sequence[int],
    *,
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """A layer whose input is known for all steps.

    Args:
        kind: "lstm" or "gru".
        gates: W x + b [N, gates], step after step.
        weight: U [gates, H].
        bias: [gates].
        state: h (and c) to start from, each [B, H].
        counts: the rows of each step, none more than of the step before; N = Σ counts.
        reverse: go through the steps from last to first.

    Returns:
        Every step's h [N, H], and the last state, each [B, H].
    """
    steps = Rows(counts, len(state[0])).slices
    outputs: tuple[Tensor, ...] = _Recur.apply(  # type: ignore[no-untyped-call]
        (kind, steps[::-1] if reverse else steps, torch.is_grad_enabled()), gates, weight, bias, *state
    )
    return outputs


class _Recur(torch.autograd.Function):
    """`recur`, and the way back through it."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: tuple[str, list[slice], bool],
        gates: Tensor,
        weight: Tensor,
        bias: Tensor,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        """The outputs [N, H], and the last state."""
        kind, steps, keep = plan
        with torch.autocast(gates.device.type, enabled=False):
            layer = Layer(kind, weight, bias, state, len(gates), gates.dtype, keep=keep)
            wide = gates.to(layer.kept.dtype)
            for rows in steps:
                layer.step(rows, wide[rows])
        ctx.plan = plan
        ctx.dtypes = [part.dtype for part in state]
        ctx.set_materialize_grads(False)
        if keep:
            ctx.save_for_backward(weight, layer.kept, layer.before)
        return (layer.outputs, *(part.to(gates.dtype) for part in layer.state))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of all inputs."""
        kind, steps, _ = ctx.plan
        weight, kept, before = ctx.saved_tensors
        with torch.autocast(weight.device.type, enabled=False):
            batch = max(rows.stop - rows.start for rows in steps)
            back = LayerBack(kind, weight, kept, before, d_last, (batch, weight.size(1)))
            for rows in reversed(steps):
                if d_outputs is not None:
                    back.d_state[0][: rows.stop - rows.start] += d_outputs[rows]
                back.back(rows)
            d_state = [part.to(dtype) for part, dtype in zip(back.d_state, ctx.dtypes, strict=True)]
            return (None, back.d_input, *back.weights(), *d_state)


def widest(dtype: torch.dtype) -> torch.dtype:
    """What sums are kept in: fp32, or fp64 for fp64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def tanh(x: Tensor) -> Tensor:
    """Torch's, or as `tanh_` where no gradient comes back."""
    return torch.tanh(x) if torch.is_grad_enabled() else tanh_(x.clone())


def tanh_(x: Tensor) -> Tensor:
    """In place, as 2 σ(2x) - 1 where that is faster: on a CPU torch's σ took a tenth of the time of its tanh.

    In bf16 it is torch's own, since σ has no finer numbers near x = 0.
    """
    slow = x.device.type == "cpu" and x.dtype != torch.bfloat16
    return x.mul_(2).sigmoid_().mul_(2).sub_(1) if slow else x.tanh_()
