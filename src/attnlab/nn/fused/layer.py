"""One recurrent layer, forward and backward, one step at a time, without an autograd graph of the steps.

The rows of all steps are packed in one buffer [N, …], step after step, and a step is a slice of it. Sentences
that end earlier come last in the batch, so that a step updates the first n rows of the running state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.nn.fused.kernels import active_kernels
from attnlab.nn.fused.linear import outer, prepack
from attnlab.nn.fused.rows import Rows

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input


class LSTM:
    """LSTM step: i, f, o = σ(·), g = tanh(·), c' = f c + i g, h' = o tanh(c').

    Backward pass::

        dc' += dh' o (1 - tanh²c')
        di = dc' g i (1 - i)        df = dc' c f (1 - f)      gradients of the inputs of σ and tanh
        dg = dc' i (1 - g²)         do = dh' tanh(c') o (1 - o)
        dc = dc' f
    """

    saved = 6  # [i, f, g, o, tanh c', c]: saved for the backward pass, in columns of width H

    @staticmethod
    def forward(saved: Tensor, from_input: Tensor, from_state: Tensor, state: Sequence[Tensor]) -> None:
        """Add the gates' two parts [n, 4H], fill `saved` [n, 6H] and update the state [n, H] in place."""
        hidden, cell = state
        i, f, g, o, tanh, before = saved.chunk(6, dim=1)  # each [n, H]
        size = hidden.size(1)
        gates = saved[:, : 4 * size]  # [n, 4H]
        torch.add(from_input, from_state, out=gates)
        g.mul_(2)
        gates.sigmoid_()
        g.mul_(2).sub_(1)
        before.copy_(cell)
        cell.mul_(f).addcmul_(i, g)
        torch.mul(o, tanh_(tanh.copy_(cell)), out=hidden)

    @staticmethod
    def backward(saved: Tensor, before: Tensor, d_state: Sequence[Tensor], d_gates: Sequence[Tensor]) -> None:
        """Fill gradients of the gates [n, 4H] and update those of the state [n, H], but not the product."""
        d_hidden, d_cell = d_state
        i, f, g, o, tanh, cell = saved.chunk(6, dim=1)  # each [n, H]
        di, df, dg, do = d_gates[0].chunk(4, dim=1)  # each [n, H]
        sigmoid_backward(d_hidden * tanh, o, grad_input=do)
        d_cell += torch.ops.aten.tanh_backward(d_hidden * o, tanh)
        sigmoid_backward(d_cell * g, i, grad_input=di)
        sigmoid_backward(d_cell * cell, f, grad_input=df)
        tanh_backward(d_cell * i, g, grad_input=dg)
        d_cell *= f
        d_hidden.zero_()


class GRU:
    """GRU step: r, z = σ(·), n = tanh(W_n x + r (U_n h + b)), h' = n + z (h - n).

    Backward pass::

        dn = dh' (1 - z) (1 - n²)           dz = dh' (h - n) z (1 - z)
        dr = dn (U_n h + b) r (1 - r)       dh = dh' z, plus the product's part
        d(U_n h + b) = dn r
    """

    saved = 4  # [r, z, n, U_n h + b]

    @staticmethod
    def forward(saved: Tensor, from_input: Tensor, from_state: Tensor, state: Sequence[Tensor]) -> None:
        """Combine the gates' two parts [n, 3H], fill `saved` [n, 4H] and update the state [n, H] in place."""
        (hidden,) = state
        r, z, n, candidate = saved.chunk(4, dim=1)  # each [n, H]
        size = 2 * hidden.size(1)
        gates = saved[:, :size]  # [n, 2H]
        torch.add(from_input[:, :size], from_state[:, :size], out=gates)
        gates.sigmoid_()
        candidate.copy_(from_state[:, size:])
        torch.addcmul(from_input[:, size:], r, candidate, out=n)
        tanh_(n)
        hidden.sub_(n).mul_(z).add_(n)

    @staticmethod
    def backward(saved: Tensor, before: Tensor, d_state: Sequence[Tensor], d_gates: Sequence[Tensor]) -> None:
        """Fill gradients of the gates [n, 3H] and update that of the state [n, H], but not the product."""
        (d_hidden,) = d_state
        r, z, n, candidate = saved.chunk(4, dim=1)  # each [n, H]
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


CELLS: dict[str, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}


class LayerForward:
    """Forward pass of one recurrent layer.

    Args:
        kind: "lstm" or "gru".
        weight: U [gates, H].
        bias: [gates].
        state: h (and c) before the first step, each [B, H].
        rows: N, of all steps together.
        dtype: data type of matrix products and outputs. Gates and states are in fp32 or wider.
        save: save what the backward pass needs.
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
        save: bool,
    ) -> None:
        self.cell = CELLS[kind]
        self.save = save
        self.product = prepack(weight, bias, dtype)
        wide = widest(dtype)
        self.state = [part.to(wide, copy=True) for part in state]  # each [B, H]
        size = weight.size(1)
        saved = rows if save else len(state[0])
        self.saved = weight.new_empty(saved, self.cell.saved * size, dtype=wide)  # [N, saved H]
        self.before = weight.new_empty(saved, size, dtype=dtype)  # h before each step, [N, H]
        self.outputs = weight.new_empty(rows, size, dtype=dtype)  # h after each step, [N, H]

    def step(self, rows: slice, from_input: Tensor) -> Tensor:
        """Process the rows of one step, given W x + b [n, gates]; return h [n, H]."""
        count = rows.stop - rows.start
        saved = rows if self.save else slice(count)
        state = [part[:count] for part in self.state]  # each [n, H]
        before = self.before[saved]  # [n, H]
        before.copy_(state[0])
        self.cell.forward(self.saved[saved], from_input, self.product(before), state)
        outputs = self.outputs[rows]  # [n, H]
        outputs.copy_(state[0])
        return outputs


class LayerBackward:
    """Backward pass of one recurrent layer.

    Args:
        kind: "lstm" or "gru".
        weight: U [gates, H].
        saved: see `LayerForward`.
        before: see `LayerForward`.
        d_state: gradients of the last state, each [B, H] or None for zeros.
        shape: shape of a state, (B, H).
    """

    def __init__(
        self,
        kind: str,
        weight: Tensor,
        saved: Tensor,
        before: Tensor,
        d_state: Sequence[Tensor | None],
        shape: tuple[int, int],
    ) -> None:
        self.cell = CELLS[kind]
        self.saved, self.before = saved, before
        self.product = prepack(weight.T, None, before.dtype)
        self.d_state = [
            saved.new_zeros(shape) if part is None else part.to(saved.dtype, copy=True) for part in d_state
        ]  # each [B, H]
        gates = [before.new_empty(len(saved), len(weight)) for _ in range(2 if self.cell is GRU else 1)]
        self.d_gates = gates
        self.d_input, self.d_product = gates[0], gates[-1]  # [N, gates]: of W x + b, and of U h + b

    def step(self, rows: slice) -> Tensor:
        """Go back one step, from the gradient of h in `d_state[0]`; return d(W x + b) [n, gates]."""
        d_state = [part[: rows.stop - rows.start] for part in self.d_state]  # each [n, H]
        self.cell.backward(
            self.saved[rows], self.before[rows], d_state, [gates[rows] for gates in self.d_gates]
        )
        d_state[0].add_(self.product(self.d_product[rows]))
        return self.d_input[rows]

    def weights(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of U [gates, H] and its bias [gates]: one product for all steps."""
        return outer(self.d_product, self.before), self.d_product.sum(dim=0, dtype=self.saved.dtype)


def cell_step(
    kind: str, from_input: Tensor, from_state: Tensor, state: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Compute a single step without gradients.

    Args:
        kind: "lstm" or "gru".
        from_input: W x + b [..., gates].
        from_state: U h + b [..., gates].
        state: h (and c) before the step, each [..., H].

    Returns:
        The state after the step, each [..., H], in fp32 or wider.
    """
    shape = state[0].shape
    wide = widest(from_state.dtype)
    new = [part.to(wide, copy=True).reshape(-1, shape[-1]) for part in state]  # each [n, H]
    saved = from_input.new_empty(len(new[0]), CELLS[kind].saved * shape[-1], dtype=wide)
    gates = from_input.expand(from_state.shape).reshape(len(saved), -1)  # [n, gates]
    CELLS[kind].forward(saved, gates, from_state.reshape(len(saved), -1), new)
    return tuple(part.view(shape) for part in new)


def unroll_layer(
    kind: str,
    gates: Tensor,
    weight: Tensor,
    bias: Tensor,
    state: Sequence[Tensor],
    counts: Sequence[int],
    *,
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """Compute all steps of a layer whose inputs are known.

    Args:
        kind: "lstm" or "gru".
        gates: W x + b [N, gates], step after step.
        weight: U [gates, H].
        bias: [gates].
        state: initial h (and c), each [B, H].
        counts: active sentences of each step, never increasing; N = Σ counts.
        reverse: go through the steps from last to first.

    Returns:
        h of every step [N, H], and the last state, each [B, H].
    """
    steps = Rows(counts, len(state[0])).slices
    outputs: tuple[Tensor, ...] = _UnrollLayer.apply(  # type: ignore[no-untyped-call]
        (kind, steps[::-1] if reverse else steps, torch.is_grad_enabled()), gates, weight, bias, *state
    )
    return outputs


class _UnrollLayer(torch.autograd.Function):
    """`unroll_layer` with its backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        options: tuple[str, list[slice], bool],
        gates: Tensor,
        weight: Tensor,
        bias: Tensor,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        """Compute the outputs [N, H] and the last state."""
        kind, steps, save = options
        with torch.autocast(gates.device.type, enabled=False):
            layer = LayerForward(kind, weight, bias, state, len(gates), gates.dtype, save=save)
            wide = gates.to(layer.saved.dtype)  # [N, gates]
            for rows in steps:
                layer.step(rows, wide[rows])
        ctx.options = options
        ctx.dtypes = [part.dtype for part in state]
        ctx.set_materialize_grads(False)
        if save:
            ctx.save_for_backward(weight, layer.saved, layer.before)
        return (layer.outputs, *(part.to(gates.dtype) for part in layer.state))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor | None, *d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        """Compute the gradients of all inputs."""
        kind, steps, _ = ctx.options
        weight, saved, before = ctx.saved_tensors
        with torch.autocast(weight.device.type, enabled=False):
            batch = max(rows.stop - rows.start for rows in steps)
            layer = LayerBackward(kind, weight, saved, before, d_last, (batch, weight.size(1)))
            for rows in reversed(steps):
                if d_outputs is not None:
                    layer.d_state[0][: rows.stop - rows.start] += d_outputs[rows]
                layer.step(rows)
            d_state = [part.to(dtype) for part, dtype in zip(layer.d_state, ctx.dtypes, strict=True)]
            return (None, layer.d_input, *layer.weights(), *d_state)


def widest(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that sums are accumulated in: fp32, or fp64 for fp64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def tanh(x: Tensor) -> Tensor:
    """Compute tanh of a tensor of any shape: by `tanh_` if kernels are fused and no gradient is needed."""
    if torch.is_grad_enabled() or not active_kernels().fused:
        return torch.tanh(x)
    return tanh_(x.clone())


def tanh_(x: Tensor) -> Tensor:
    """Compute tanh of any shape in place, as 2 σ(2x) - 1 where that is faster.

    On a CPU, torch's sigmoid took a tenth of the time of its tanh. In bf16 torch's tanh is used, because σ
    loses the precision of bf16 near x = 0.
    """
    slow = x.device.type == "cpu" and x.dtype != torch.bfloat16
    return x.mul_(2).sigmoid_().mul_(2).sub_(1) if slow else x.tanh_()
