"""Recurrent cells, opened up so that a loop need not do what a single product can.

A cell's gates are a sum: W x + U s + b. Of a decoder's input only a part (the context, the state) waits for
the step before; the rest is known for all steps at once. So a cell offers the two halves by themselves.
Parameters, their layout and the numbers are those of torch's own cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from attnlab.nn.linear import linear
from attnlab.nn.recurrence import recur

CellState = tuple[Tensor, ...]
"""(h,) of a GRU, (h, c) of an LSTM, each [B, Q, H]."""


class LSTMCell(nn.LSTMCell):
    """i, f, o = σ(·), g = tanh(·), c' = f c + i g, h' = o tanh(c')  (Hochreiter & Schmidhuber 1997)."""

    kind = "lstm"
    states = 2

    def advance(self, gates: Tensor, state: CellState) -> CellState:
        """One step from (h, c), given W x + b as `gates` [B, Q, 4H]."""
        hidden, cell = state
        gates = gates + linear(hidden, self.weight_hh, self.bias_hh)  # [B, Q, 4H]
        i, f, g, o = gates.chunk(4, dim=-1)  # each [B, Q, H]
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)  # [B, Q, H]
        return torch.sigmoid(o) * torch.tanh(cell), cell


class GRUCell(nn.GRUCell):
    """r, z = σ(·), n = tanh(W_n x + r (U_n h + b)), h' = (1 - z) n + z h  (Cho et al. 2014)."""

    kind = "gru"
    states = 1

    def advance(self, gates: Tensor, state: CellState) -> CellState:
        """One step from (h,), given W x + b as `gates` [B, Q, 3H]."""
        (hidden,) = state
        from_input = gates.chunk(3, dim=-1)  # each [B, Q, H]
        from_state = linear(hidden, self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        r = torch.sigmoid(from_input[0] + from_state[0])
        z = torch.sigmoid(from_input[1] + from_state[1])
        n = torch.tanh(from_input[2] + r * from_state[2])
        return (n + z * (hidden - n),)


CELLS = {"lstm": LSTMCell, "gru": GRUCell}


class Cells(nn.ModuleList):
    """Cells of one kind and size, a layer each.

    Args:
        cell: "lstm" or "gru".
        widths: of what each layer reads, the first layer's first.
        size: H.
    """

    def __init__(self, *, cell: Literal["lstm", "gru"], widths: Sequence[int], size: int) -> None:
        super().__init__(CELLS[cell](width, size) for width in widths)

    @property
    def states_per_layer(self) -> int:
        """2 for LSTM (h and c), 1 for GRU."""
        return self[0].states  # type: ignore[return-value]

    @property
    def kind(self) -> str:
        """Of its cells: "lstm" or "gru"."""
        return self[0].kind  # type: ignore[return-value]


def read(cell: nn.Module, gates: Tensor, state: CellState) -> tuple[Tensor, CellState]:
    """Take a cell through T steps.

    Args:
        cell: one of `CELLS`.
        gates: W x + b of every step, [B, T, gates].
        state: to start from, each [B, 1, H].

    Returns:
        The outputs [B, T, H], and the last state.
    """
    B, T, _ = gates.shape
    outputs, *last = recur(
        cell.kind,  # type: ignore[arg-type]
        gates.transpose(0, 1).flatten(0, 1),  # [T B, gates]
        cell.weight_hh,  # type: ignore[arg-type]
        cell.bias_hh,  # type: ignore[arg-type]
        [part[:, 0] for part in state],
        [B] * T,
    )
    return outputs.view(T, B, -1).transpose(0, 1), tuple(part[:, None] for part in last)


class CellStack(nn.Module):
    """L cells, each reading the output of the one below; the first reads [x; u].

    x (the embedded token) is known ahead, u (the context, or the fed-back output) only at its step.

    Args:
        cell: "lstm" or "gru".
        ahead_size: width of x.
        late_size: width of u; may be 0.
        size: H.
        layers: L.
        dropout: on what goes from a layer to the next.
    """

    def __init__(
        self,
        *,
        cell: Literal["lstm", "gru"],
        ahead_size: int,
        late_size: int,
        size: int,
        layers: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.ahead_size = ahead_size
        self.size = size
        widths = [ahead_size + late_size, *[size] * (layers - 1)]
        self.cells = Cells(cell=cell, widths=widths, size=size)
        self.dropout = nn.Dropout(dropout)

    @property
    def states_per_layer(self) -> int:
        """2 for LSTM (h and c), 1 for GRU."""
        return self.cells.states_per_layer

    def ahead(self, x: Tensor) -> Tensor:
        """The first layer's share of x: [B, T, E] to [B, T, gates], for all steps in one product."""
        first = self.cells[0]
        return linear(x, first.weight_ih[:, : self.ahead_size], first.bias_ih)  # type: ignore[index,arg-type]

    def forward(
        self, ahead: Tensor, u: Tensor, layers: tuple[CellState, ...]
    ) -> tuple[Tensor, tuple[CellState, ...]]:
        """One step.

        Args:
            ahead: [B, Q, gates], a step of what `ahead` gave.
            u: [B, Q, late_size].
            layers: each layer's state.

        Returns:
            The top layer's output [B, Q, H], and the new states.
        """
        first = self.cells[0]
        gates = ahead + linear(u, first.weight_ih[:, self.ahead_size :])  # type: ignore[index]
        states = [first.advance(gates, layers[0])]  # type: ignore[operator]
        for cell, state in zip(list(self.cells)[1:], layers[1:], strict=True):
            below = self.dropout(states[-1][0])  # [B, Q, H]
            gates = linear(below, cell.weight_ih, cell.bias_ih)  # type: ignore[arg-type]
            states.append(cell.advance(gates, state))  # type: ignore[operator]
        return states[-1][0], tuple(states)

    def read(self, x: Tensor, u: Tensor, layers: tuple[CellState, ...]) -> Tensor:
        """All steps of a target whose u waits for none of them.

        Args:
            x: [B, T, E].
            u: [B, 1, late_size], the same at every step.
            layers: each layer's state.

        Returns:
            The top layer's outputs [B, T, H].
        """
        first = self.cells[0]
        gates = self.ahead(x) + linear(u, first.weight_ih[:, self.ahead_size :])  # type: ignore[index]
        outputs, _ = read(first, gates, layers[0])
        for cell, state in zip(list(self.cells)[1:], layers[1:], strict=True):
            gates = linear(self.dropout(outputs), cell.weight_ih, cell.bias_ih)  # type: ignore[arg-type]
            outputs, _ = read(cell, gates, state)
        return outputs
