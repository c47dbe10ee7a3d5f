"""Recurrent cells, opened up so that a loop need not do what a single product can.

A cell's gates are a sum: W x + U s + b. Of a decoder's input only a part (the context, the state) waits for
the step before; the rest is known for all steps at once. So a cell offers the two halves by themselves.
Parameters, their layout and the numbers are those of torch's own cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.fused import advance, recur
from attnlab.nn.fused.linear import linear

Kind = Literal["lstm", "gru"]
CellState = tuple[Tensor, ...]
"""(h,) of a GRU, (h, c) of an LSTM, each [B, Q, H]."""


class Norms(nn.Module):
    """Layer normalisation inside a cell: LN(W x + b) + LN(U s + b), and o tanh(LN(c')) in an LSTM.

    Ba, Kiros & Hinton 2016 (arXiv 1607.06450), equations 20 to 22 and 26 to 29. Each LN has a gain and an
    offset of its own.

    Args:
        kind: of the cell.
        size: H.
    """

    def __init__(self, kind: Kind, size: int) -> None:
        super().__init__()
        gates = {"lstm": 4, "gru": 3}[kind] * size
        self.input = nn.LayerNorm(gates)
        self.state = nn.LayerNorm(gates)
        self.cell = nn.LayerNorm(size) if kind == "lstm" else nn.Identity()


def _lstm(from_input: Tensor, from_state: Tensor, state: CellState, norms: Norms | None) -> CellState:
    """i, f, o = σ(·), g = tanh(·), c' = f c + i g, h' = o tanh(c')  (Hochreiter & Schmidhuber 1997)."""
    _, cell = state
    i, f, g, o = (from_input + from_state).chunk(4, dim=-1)  # each [B, Q, H]
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)  # [B, Q, H]
    shown = cell if norms is None else norms.cell(cell)
    return torch.sigmoid(o) * torch.tanh(shown), cell


def _gru(from_input: Tensor, from_state: Tensor, state: CellState, norms: Norms | None) -> CellState:
    """r, z = σ(·), n = tanh(W_n x + r (U_n h + b)), h' = (1 - z) n + z h  (Cho et al. 2014)."""
    (hidden,) = state
    of_input, of_state = from_input.chunk(3, dim=-1), from_state.chunk(3, dim=-1)  # each [B, Q, H]
    r = torch.sigmoid(of_input[0] + of_state[0])
    z = torch.sigmoid(of_input[1] + of_state[1])
    n = torch.tanh(of_input[2] + r * of_state[2])
    return (n + z * (hidden - n),)


STEPS = {"lstm": _lstm, "gru": _gru}
TORCH_CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}


class Recurrence(NamedTuple):
    """What takes a state a step on, beside the input."""

    kind: Kind
    weight: Tensor  # U [gates, H]
    bias: Tensor  # [gates]
    norms: Norms | None = None
    dropout: Tensor | None = None  # what the state is multiplied by where it is read back, [B, …, H]

    @property
    def plain(self) -> bool:
        """Whether `nn.recurrence` has it, with its way back written by hand."""
        return self.norms is None and self.dropout is None

    def advance(self, gates: Tensor, state: CellState) -> CellState:
        """One step, given W x + b as `gates` [B, Q, gates]."""
        hidden = state[0] if self.dropout is None else state[0] * self.dropout
        from_state = linear(hidden, self.weight, self.bias)  # [B, Q, gates]
        if self.plain and not torch.is_grad_enabled():
            return advance(self.kind, gates, from_state, state)
        if self.norms is not None:
            gates, from_state = self.norms.input(gates), self.norms.state(from_state)
        return STEPS[self.kind](gates, from_state, state, self.norms)

    def read(
        self, gates: Tensor, state: CellState, counts: Sequence[int], *, reverse: bool = False
    ) -> tuple[Tensor, ...]:
        """All steps, as `nn.recurrence.recur` reads them: every step's h [N, H], and the last state."""
        if self.plain:
            return recur(self.kind, gates, self.weight, self.bias, state, counts, reverse=reverse)
        steps = torch.split(gates, list(counts))
        outputs = []
        for gates in reversed(steps) if reverse else steps:
            n = len(gates)  # rows that end earlier lie last
            dropout = None if self.dropout is None else self.dropout[:n]
            new = self._replace(dropout=dropout).advance(gates, tuple(part[:n] for part in state))
            outputs.append(new[0])
            state = tuple(torch.cat([part, old[n:]]) for part, old in zip(new, state, strict=True))
        return torch.cat(outputs[::-1] if reverse else outputs), *state


class Cells(nn.ModuleList):
    """Torch's own cells of one kind and size, a layer each.

    Args:
        cell: "lstm" or "gru".
        widths: of what each layer reads, the first layer's first.
        size: H.
        layer_norm: normalise inside the cells: see `Norms`.
        recurrent_dropout: of what a cell reads of its own state, the same units at every step (Gal &
            Ghahramani 2016, arXiv 1512.05287); the state that is carried on stays whole.
    """

    def __init__(
        self,
        *,
        cell: Kind,
        widths: Sequence[int],
        size: int,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(TORCH_CELLS[cell](width, size) for width in widths)
        self.kind: Kind = cell
        self.layer_norm = layer_norm
        self.recurrent_dropout = recurrent_dropout
        for part in self:
            part.add_module("norms", Norms(cell, size) if layer_norm else None)

    @property
    def states_per_layer(self) -> int:
        """2 for LSTM (h and c), 1 for GRU."""
        return 2 if self.kind == "lstm" else 1

    @property
    def plain(self) -> bool:
        """Whether `nn.recurrence` has them as they are now, with the way back written by hand."""
        return not self.layer_norm and not (self.training and self.recurrent_dropout > 0)

    def draw(self, layers: tuple[CellState, ...]) -> tuple[Tensor, ...]:
        """What each layer's state is multiplied by where it is read back, at every step; () for nothing."""
        if not self.training or self.recurrent_dropout == 0:
            return ()
        return tuple(F.dropout(torch.ones_like(layer[0]), self.recurrent_dropout) for layer in layers)

    def recurrence(self, layer: int, dropout: tuple[Tensor, ...] = ()) -> Recurrence:
        """Of one layer."""
        cell: Any = self[layer]
        mask = dropout[layer] if dropout else None
        return Recurrence(self.kind, cell.weight_hh, cell.bias_hh, cell.norms, mask)


def read(recurrence: Recurrence, gates: Tensor, state: CellState) -> tuple[Tensor, CellState]:
    """Take a layer through T steps.

    Args:
        recurrence: the layer's; its dropout is [B, 1, H].
        gates: W x + b of every step, [B, T, gates].
        state: to start from, each [B, 1, H].

    Returns:
        The outputs [B, T, H], and the last state.
    """
    B, T, _ = gates.shape
    if recurrence.dropout is not None:
        recurrence = recurrence._replace(dropout=recurrence.dropout[:, 0])
    rows = gates.transpose(0, 1).flatten(0, 1)  # [T B, gates]
    outputs, *last = recurrence.read(rows, tuple(part[:, 0] for part in state), [B] * T)
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
        layer_norm: as in `Cells`.
        recurrent_dropout: as in `Cells`.
    """

    def __init__(
        self,
        *,
        cell: Kind,
        ahead_size: int,
        late_size: int,
        size: int,
        layers: int,
        dropout: float,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.ahead_size = ahead_size
        self.size = size
        widths = [ahead_size + late_size, *[size] * (layers - 1)]
        self.cells = Cells(
            cell=cell, widths=widths, size=size, layer_norm=layer_norm, recurrent_dropout=recurrent_dropout
        )
        self.dropout = nn.Dropout(dropout)

    @property
    def states_per_layer(self) -> int:
        """2 for LSTM (h and c), 1 for GRU."""
        return self.cells.states_per_layer

    @property
    def plain(self) -> bool:
        """As of its cells."""
        return self.cells.plain

    def draw(self, layers: tuple[CellState, ...]) -> tuple[Tensor, ...]:
        """As its cells do."""
        return self.cells.draw(layers)

    def ahead(self, x: Tensor) -> Tensor:
        """The first layer's share of x: [B, T, E] to [B, T, gates], for all steps in one product."""
        first = self.cells[0]
        return linear(x, first.weight_ih[:, : self.ahead_size], first.bias_ih)  # type: ignore[index,arg-type]

    def forward(
        self, ahead: Tensor, u: Tensor, layers: tuple[CellState, ...], dropout: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, tuple[CellState, ...]]:
        """One step.

        Args:
            ahead: [B, Q, gates], a step of what `ahead` gave.
            u: [B, Q, late_size].
            layers: each layer's state.
            dropout: what `Cells.draw` gave.

        Returns:
            The top layer's output [B, Q, H], and the new states.
        """
        first = self.cells[0]
        gates = ahead + linear(u, first.weight_ih[:, self.ahead_size :])  # type: ignore[index]
        states = [self.cells.recurrence(0, dropout).advance(gates, layers[0])]
        for layer, cell in enumerate(list(self.cells)[1:], start=1):
            below = self.dropout(states[-1][0])  # [B, Q, H]
            gates = linear(below, cell.weight_ih, cell.bias_ih)  # type: ignore[arg-type]
            states.append(self.cells.recurrence(layer, dropout).advance(gates, layers[layer]))
        return states[-1][0], tuple(states)

    def read(
        self, x: Tensor, u: Tensor, layers: tuple[CellState, ...], dropout: tuple[Tensor, ...] = ()
    ) -> Tensor:
        """All steps of a target whose u waits for none of them.

        Args:
            x: [B, T, E].
            u: [B, 1, late_size], the same at every step.
            layers: each layer's state.
            dropout: what `Cells.draw` gave.

        Returns:
            The top layer's outputs [B, T, H].
        """
        first = self.cells[0]
        gates = self.ahead(x) + linear(u, first.weight_ih[:, self.ahead_size :])  # type: ignore[index]
        outputs, _ = read(self.cells.recurrence(0, dropout), gates, layers[0])
        for layer, cell in enumerate(list(self.cells)[1:], start=1):
            gates = linear(self.dropout(outputs), cell.weight_ih, cell.bias_ih)  # type: ignore[arg-type]
            outputs, _ = read(self.cells.recurrence(layer, dropout), gates, layers[layer])
        return outputs
