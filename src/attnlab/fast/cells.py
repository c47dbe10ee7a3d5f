"""Single steps of LSTM and GRU, forward and backward, in place, and the elementwise functions they share."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
tanh_backward = torch.ops.aten.tanh_backward.grad_input

ONE, TWO = torch.tensor(1.0), torch.tensor(2.0)
"""Scalars as tensors: torch converts a Python number to the dtype of the other operand at every call."""

Map = Callable[[Tensor], Tensor]  # Layer normalisation of the rows of one step [n, H], or its backward pass


def identity(x: Tensor) -> Tensor:
    """Return a tensor of any shape unchanged, in place of layer normalisation or a projection."""
    return x


class LSTM:
    """LSTM step: i, f, o = σ(·), g = tanh(·), c' = f c + i g, h' = o tanh(c').

    With layer normalisation, tanh(c') is tanh(LN(c')), and its gradient passes through LN. Backward pass::

        dc' += dh' o (1 - tanh²c')
        di = dc' g i (1 - i)        df = dc' c f (1 - f)      gradients of the inputs of σ and tanh
        dg = dc' i (1 - g²)         do = dh' tanh(c') o (1 - o)
        dc = dc' f

    The factors of dc' and dh' are known before the backward pass, and are computed for all steps at once.
    """

    extra = 2  # [tanh c', c]: saved for the backward pass in addition to the gates

    @staticmethod
    def combine(gates: Tensor, extra: Tensor, from_input: Tensor, from_state: Tensor) -> None:
        """Add the two parts [n, 4H] of the inputs of the gates."""
        torch.add(from_input, from_state, out=gates)

    @staticmethod
    def forward(gates: Tensor, extra: Tensor, state: Sequence[Tensor], norm: Map) -> None:
        """Compute the gates [n, 4H] from their inputs, fill `extra` [2, n, H], update the state [n, H]."""
        hidden, cell = state
        i, f, g, o = gates.chunk(4, dim=1)  # each [n, H]
        tanh, before = extra.unbind()  # each [n, H]
        g.mul_(TWO)
        gates.sigmoid_()
        g.mul_(TWO).sub_(ONE)
        before.copy_(cell)
        cell.mul_(f).addcmul_(i, g)
        torch.mul(o, write_tanh(norm(cell), tanh), out=hidden)

    @staticmethod
    def step(
        from_input: Tensor, from_state: Tensor, state: Sequence[Tensor], norm: Map
    ) -> tuple[Tensor, ...]:
        """Compute one step without gradients, from parts [..., 4H] and the state [..., H], in new tensors."""
        wide = widest(from_state.dtype)
        gates = (from_input + from_state).to(wide)  # [..., 4H]
        i, f, g, o = gates.chunk(4, dim=-1)  # each [..., H]
        g.mul_(TWO)
        gates.sigmoid_()
        g.mul_(TWO).sub_(ONE)
        cell = (state[1].to(wide) * f).addcmul_(i, g)  # [..., H]
        normed = norm(cell)  # [..., H]
        return write_tanh(normed, torch.empty_like(normed)).mul_(o), cell

    @staticmethod
    def factors(gates: Tensor, extra: Tensor, before: Tensor, out: Tensor) -> Sequence[Tensor]:
        """Return factors of all steps: of di, df, dg and do in `out` [N, 4H], and o (1 - tanh²c') [N, H]."""
        i, f, g, o = gates.chunk(4, dim=1)  # each [N, H]
        tanh, cell = extra.unbind()  # each [N, H]
        of_i, of_f, of_g, of_o = out.chunk(4, dim=1)  # each [N, H]
        sigmoid_backward(g, i, grad_input=of_i)
        sigmoid_backward(cell, f, grad_input=of_f)
        tanh_backward(i, g, grad_input=of_g)
        sigmoid_backward(tanh, o, grad_input=of_o)
        return out, torch.ops.aten.tanh_backward(o, tanh)

    @staticmethod
    def backward(
        gates: Tensor,
        factors: Sequence[Tensor],
        d_state: Sequence[Tensor],
        d_gates: Sequence[Tensor],
        norm: Map | None,
    ) -> None:
        """Fill gradients of the gates [n, 4H] and update those of the state [n, H], but not the product."""
        d_hidden, d_cell = d_state
        of_gates, of_cell = factors
        size = d_hidden.size(1)
        if norm is None:
            d_cell.addcmul_(d_hidden, of_cell)
        else:
            d_cell += norm(d_hidden * of_cell)
        d_parts, parts = d_gates[0].chunk(4, dim=1), of_gates.chunk(4, dim=1)  # each [n, H]
        for d_part, part, d_output in zip(d_parts, parts, (d_cell, d_cell, d_cell, d_hidden), strict=True):
            torch.mul(part, d_output, out=d_part)
        d_cell.mul_(gates[:, size : 2 * size])
        d_hidden.zero_()


class GRU:
    """GRU step: r, z = σ(·), n = tanh(W_n x + r (U_n h + b)), h' = n + z (h - n).

    Backward pass::

        dn = dh' (1 - z) (1 - n²)           dz = dh' (h - n) z (1 - z)
        dr = dn (U_n h + b) r (1 - r)       dh = dh' z, plus the product's part
        d(U_n h + b) = dn r
    """

    extra = 1  # [U_n h + b]

    @staticmethod
    def combine(gates: Tensor, extra: Tensor, from_input: Tensor, from_state: Tensor) -> None:
        """Add the two parts [n, 3H] of r and z; the product of n is kept apart."""
        size = 2 * extra.size(2)
        torch.add(from_input[:, :size], from_state[:, :size], out=gates[:, :size])
        gates[:, size:] = from_input[:, size:]
        extra[0] = from_state[:, size:]

    @staticmethod
    def forward(gates: Tensor, extra: Tensor, state: Sequence[Tensor], norm: Map) -> None:
        """Compute the gates [n, 3H] from their inputs, and update the state [n, H] in place.

        A GRU has no cell to normalise.
        """
        (hidden,) = state
        r, z, n = gates.chunk(3, dim=1)  # each [n, H]
        gates[:, : 2 * hidden.size(1)].sigmoid_()
        n.addcmul_(r, extra[0])
        write_tanh(n, n)
        hidden.sub_(n).mul_(z).add_(n)

    @staticmethod
    def step(
        from_input: Tensor, from_state: Tensor, state: Sequence[Tensor], norm: Map
    ) -> tuple[Tensor, ...]:
        """Compute one step without gradients, from parts [..., 3H] and the state [..., H], in new tensors."""
        wide, sizes = widest(from_state.dtype), [2 * state[0].size(-1), state[0].size(-1)]
        input_gates, input_new = torch.split(from_input, sizes, dim=-1)  # [..., 2H], [..., H]
        state_gates, state_new = torch.split(from_state, sizes, dim=-1)  # [..., 2H], [..., H]
        r, z = (input_gates + state_gates).to(wide).sigmoid_().chunk(2, dim=-1)  # each [..., H]
        n = torch.addcmul(input_new.to(wide), r, state_new.to(wide))  # [..., H]
        write_tanh(n, n)
        return ((state[0].to(wide) - n).mul_(z).add_(n),)

    @staticmethod
    def factors(gates: Tensor, extra: Tensor, before: Tensor, out: Tensor) -> Sequence[Tensor]:
        """Return factors of all steps: of dr, dz and dn in `out` [N, 3H]."""
        r, z, n = gates.chunk(3, dim=1)  # each [N, H]
        of_r, of_z, of_n = out.chunk(3, dim=1)  # each [N, H]
        sigmoid_backward(extra[0], r, grad_input=of_r)
        sigmoid_backward(before - n, z, grad_input=of_z)
        tanh_backward(1 - z, n, grad_input=of_n)
        return (out,)

    @staticmethod
    def backward(
        gates: Tensor,
        factors: Sequence[Tensor],
        d_state: Sequence[Tensor],
        d_gates: Sequence[Tensor],
        norm: Map | None,
    ) -> None:
        """Fill gradients of the gates [n, 3H] and update that of the state [n, H], but not the product."""
        (d_hidden,) = d_state
        r, z, _ = gates.chunk(3, dim=1)  # each [n, H]
        of_r, of_z, of_n = factors[0].chunk(3, dim=1)  # each [n, H]
        d_input, d_product = d_gates
        dr, dz, dn = d_input.chunk(3, dim=1)  # each [n, H]
        size = 2 * d_hidden.size(1)
        d_new = of_n * d_hidden  # [n, H]
        torch.mul(of_r, d_new, out=dr)
        torch.mul(of_z, d_hidden, out=dz)
        dn.copy_(d_new)
        d_product[:, :size] = d_input[:, :size]
        torch.mul(d_new, r, out=d_product[:, size:])
        d_hidden *= z


CELLS: dict[str, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}


def widest(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that sums are accumulated in: fp32, or fp64 for fp64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def write_tanh(x: Tensor, out: Tensor) -> Tensor:
    """Write tanh of any shape to `out`, which may be `x`, as 2 σ(2x) - 1 where that is faster.

    On a CPU, torch's sigmoid is much faster than its tanh. In bf16 torch's tanh is used, because σ
    loses the precision of bf16 near x = 0.
    """
    if x.device.type != "cpu" or x.dtype == torch.bfloat16:
        return torch.tanh(x, out=out)
    return torch.mul(x, TWO, out=out).sigmoid_().mul_(TWO).sub_(ONE)
