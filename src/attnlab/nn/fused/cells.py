"""Single steps of LSTM and GRU, forward and backward, in place, and the elementwise functions they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnlab.nn.fused.kernels import active_kernels

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input

Map = Callable[[Tensor], Tensor]
"""Layer normalisation of the rows of one step [n, H], or its backward pass."""


def identity(x: Tensor) -> Tensor:
    """Return a tensor of any shape itself, in place of layer normalisation."""
    return x


class LSTM:
    """LSTM step: i, f, o = σ(·), g = tanh(·), c' = f c + i g, h' = o tanh(c').

    With layer normalisation, tanh(c') is tanh(LN(c')), and its gradient passes through LN. Backward pass::

        dc' += dh' o (1 - tanh²c')
        di = dc' g i (1 - i)        df = dc' c f (1 - f)      gradients of the inputs of σ and tanh
        dg = dc' i (1 - g²)         do = dh' tanh(c') o (1 - o)
        dc = dc' f
    """

    saved = 6  # [i, f, g, o, tanh c', c]: saved for the backward pass, in columns of width H

    @staticmethod
    def forward(
        saved: Tensor,
        from_input: Tensor,
        from_state: Tensor,
        state: Sequence[Tensor],
        norm: Map,
    ) -> None:
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
        torch.mul(o, tanh_(tanh.copy_(norm(cell))), out=hidden)

    @staticmethod
    def backward(
        saved: Tensor,
        before: Tensor,
        d_state: Sequence[Tensor],
        d_gates: Sequence[Tensor],
        norm: Map,
    ) -> None:
        """Fill gradients of the gates [n, 4H] and update those of the state [n, H], but not the product."""
        d_hidden, d_cell = d_state
        i, f, g, o, tanh, cell = saved.chunk(6, dim=1)  # each [n, H]
        di, df, dg, do = d_gates[0].chunk(4, dim=1)  # each [n, H]
        sigmoid_backward(d_hidden * tanh, o, grad_input=do)
        d_cell += norm(torch.ops.aten.tanh_backward(d_hidden * o, tanh))
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
    def forward(
        saved: Tensor,
        from_input: Tensor,
        from_state: Tensor,
        state: Sequence[Tensor],
        norm: Map,
    ) -> None:
        """Combine the gates' two parts [n, 3H], fill `saved` [n, 4H] and update the state [n, H] in place.

        A GRU has no cell to normalise.
        """
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
    def backward(
        saved: Tensor,
        before: Tensor,
        d_state: Sequence[Tensor],
        d_gates: Sequence[Tensor],
        norm: Map,
    ) -> None:
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
