"""Recurrent cells whose input and state parts can be computed separately.

`_lstm` and `_gru` compute the new state from the summands W x + b and U h + b of the gates. `Recurrence`, one
layer, computes W x + b of all steps in one product, and U h + b step by step. `CellStack` has the layers of a
decoder. Parameters, their layout and the results are those of torch's own cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.settings import Fraction

Kind = Literal["lstm", "gru"]
CellState = tuple[Tensor, ...]  # (h,) of a GRU, (h, c) of an LSTM, each [B, Q, H]


class CellSettings(TypedDict, total=False):
    """Settings that every recurrent decoder passes to its cells.

    Args:
        cell: "lstm" or "gru".
        layer_norm: use layer normalisation inside the cells: see `Norms`.
        recurrent_dropout: dropout probability of the state where the cell reads it, the same units at every
            step (Gal & Ghahramani 2016, arXiv 1512.05287); the state that is passed on keeps all its units.
    """

    cell: Kind
    layer_norm: bool
    recurrent_dropout: Fraction


class StateShape(NamedTuple):
    """Shape of a decoder's initial state: L layers of tensors [B, 1, H]."""

    size: int  # H
    layers: int  # L
    states_per_layer: int  # 2 for LSTM (h and c), 1 for GRU


class Norms(nn.Module):
    """Layer normalisation inside a cell: LN(W x + b) + LN(U h + b), and o tanh(LN(c')) in an LSTM.

    Ba, Kiros & Hinton 2016 (arXiv 1607.06450), equations 20 to 22. Each LN has its own gain and bias, and
    normalises all gates together, also those of a GRU and its candidate.
    """

    def __init__(self, kind: Kind, size: int) -> None:
        super().__init__()
        gates = {"lstm": 4, "gru": 3}[kind] * size
        self.input = nn.LayerNorm(gates)
        self.state = nn.LayerNorm(gates)
        self.cell = nn.LayerNorm(size) if kind == "lstm" else nn.Identity()


def _lstm(from_input: Tensor, from_state: Tensor, state: CellState, norms: Norms | None) -> CellState:
    """LSTM (Hochreiter & Schmidhuber 1997): i, f, o = σ(·), g = tanh(·), c' = f c + i g, h' = o tanh(c')."""
    _, cell = state
    i, f, g, o = (from_input + from_state).chunk(4, dim=-1)  # each [B, Q, H]
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)  # [B, Q, H]
    shown = cell if norms is None else norms.cell(cell)  # [B, Q, H]
    return torch.sigmoid(o) * torch.tanh(shown), cell


def _gru(from_input: Tensor, from_state: Tensor, state: CellState, norms: Norms | None) -> CellState:
    """GRU (Cho et al. 2014): r, z = σ(·), n = tanh(W_n x + r (U_n h + b)), h' = (1 - z) n + z h."""
    (hidden,) = state
    of_input, of_state = from_input.chunk(3, dim=-1), from_state.chunk(3, dim=-1)  # each [B, Q, H]
    r = torch.sigmoid(of_input[0] + of_state[0])  # [B, Q, H]
    z = torch.sigmoid(of_input[1] + of_state[1])  # [B, Q, H]
    n = torch.tanh(of_input[2] + r * of_state[2])  # [B, Q, H]
    return (n + z * (hidden - n),)


STEPS = {"lstm": _lstm, "gru": _gru}
TORCH_CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}


@dataclass(slots=True)
class Recurrence:
    """One layer of cells: its weights, and the products and steps that are computed with them."""

    kind: Kind
    input_weight: Tensor  # W [gates, I]
    input_bias: Tensor  # [gates]
    weight: Tensor  # U [gates, H]
    bias: Tensor  # [gates]
    norms: Norms | None = None
    dropout: Tensor | None = None  # factors of the state where the cell reads it, [B, …, H]

    def project(self, x: Tensor) -> Tensor:
        """Compute W x + b [..., gates] of inputs [..., I]."""
        return F.linear(x, self.input_weight, self.input_bias)

    def step(self, gates: Tensor, state: CellState) -> CellState:
        """Compute one step, given W x + b as `gates` [B, Q, gates]; return the new state."""
        hidden = state[0] if self.dropout is None else state[0] * self.dropout  # [B, Q, H]
        from_state = F.linear(hidden, self.weight, self.bias)  # [B, Q, gates]
        if self.norms is not None:
            gates, from_state = self.norms.input(gates), self.norms.state(from_state)
        return STEPS[self.kind](gates, from_state, state, self.norms)

    def unroll(
        self, gates: Tensor, state: CellState, counts: Sequence[int], *, reverse: bool = False
    ) -> tuple[Tensor, ...]:
        """Compute all steps of packed sentences: h of every step [N, H], and the last state, each [B, H].

        Args:
            gates: W x + b [N, gates], step after step.
            state: initial state, each [B, H].
            counts: active sentences of each step, first in the batch, never increasing; N = Σ counts.
            reverse: go through the steps from last to first.
        """
        steps = torch.split(gates, list(counts))  # each [n, gates]
        outputs = []
        for gates in reversed(steps) if reverse else steps:
            n = len(gates)
            dropout = None if self.dropout is None else self.dropout[:n]  # [n, H]
            new = replace(self, dropout=dropout).step(gates, tuple(part[:n] for part in state))
            outputs.append(new[0])
            state = tuple(torch.cat([part, old[n:]]) for part, old in zip(new, state, strict=True))
        return torch.cat(outputs[::-1] if reverse else outputs), *state


class Cells(nn.ModuleList):
    """Torch's own cells of one kind and size, one per layer; `widths` are the input sizes of the layers."""

    def __init__(
        self,
        *,
        cell: Kind = "lstm",
        widths: Sequence[int],
        size: int,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__(TORCH_CELLS[cell](width, size) for width in widths)
        self.kind: Kind = cell
        self.recurrent_dropout = recurrent_dropout
        for part in self:
            part.add_module("norms", Norms(cell, size) if layer_norm else None)

    @property
    def states_per_layer(self) -> int:
        """Tensors in the state of a layer: 2 for LSTM (h and c), 1 for GRU."""
        return 2 if self.kind == "lstm" else 1

    def draw_dropout(self, layers: tuple[CellState, ...]) -> tuple[Tensor, ...]:
        """Draw each layer's recurrent dropout factors [B, 1, H], used at every step; () for none."""
        if not self.training or self.recurrent_dropout == 0:
            return ()
        return tuple(F.dropout(torch.ones_like(layer[0]), self.recurrent_dropout) for layer in layers)

    def recurrence(self, layer: int, dropout: tuple[Tensor, ...] = ()) -> Recurrence:
        """Return the recurrence of one layer, with its dropout mask, one [B, 1, H] per layer in `dropout`."""
        cell: Any = self[layer]
        mask = dropout[layer] if dropout else None  # [B, 1, H]
        weights = cell.weight_ih, cell.bias_ih, cell.weight_hh, cell.bias_hh
        return Recurrence(self.kind, *weights, cell.norms, mask)


def unroll_padded(recurrence: Recurrence, gates: Tensor, state: CellState) -> tuple[Tensor, CellState]:
    """Compute all T steps of a layer for a padded batch: outputs [B, T, H], and the last state.

    States, and the dropout of the layer, are [B, 1, H]; gates are W x + b of every step, [B, T, gates].
    """
    B, T, _ = gates.shape
    if recurrence.dropout is not None:
        recurrence = replace(recurrence, dropout=recurrence.dropout[:, 0])
    rows = gates.transpose(0, 1).flatten(0, 1)  # [T B, gates]
    outputs, *last = recurrence.unroll(rows, tuple(part[:, 0] for part in state), [B] * T)
    return outputs.view(T, B, -1).transpose(0, 1), tuple(part[:, None] for part in last)


class CellStack(nn.Module):
    """L cells, each reading the output of the layer below; the first reads [x; u].

    x, the embedded token, is known for all steps; the feed u (the context, or the attentional vector of the
    step before) only at its step.

    Args:
        input_size: width of x.
        feed_size: width of u; may be 0.
    """

    def __init__(
        self,
        *,
        input_size: int,
        feed_size: int,
        size: int,
        layers: int = 1,
        dropout: float = 0.0,
        **cell: Unpack[CellSettings],
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.size = size
        self.cells = Cells(widths=[input_size + feed_size, *[size] * (layers - 1)], size=size, **cell)
        self.dropout = nn.Dropout(dropout)

    @property
    def state_shape(self) -> StateShape:
        """Shape of the states, for the bridge."""
        return StateShape(self.size, len(self.cells), self.cells.states_per_layer)

    def project_input(self, x: Tensor) -> Tensor:
        """Compute the first layer's W x + b of all steps: [B, T, E] to [B, T, gates]."""
        first: Any = self.cells[0]
        return F.linear(x, first.weight_ih[:, : self.input_size], first.bias_ih)

    def project_feed(self, u: Tensor) -> Tensor:
        """Compute the first layer's product with the feed: [B, Q, U] to [B, Q, gates]."""
        first: Any = self.cells[0]
        return F.linear(u, first.weight_ih[:, self.input_size :])

    def step(
        self, gates: Tensor, u: Tensor, layers: tuple[CellState, ...], dropout: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, tuple[CellState, ...]]:
        """Compute one step of all layers; return the top layer's output [B, Q, H], and the new states.

        Args:
            gates: one step of `project_input`, [B, Q, gates].
            u: the feed [B, Q, U].
            layers: state of each layer, each [B, Q, H].
            dropout: drawn by `Cells.draw_dropout`.
        """
        gates = gates + self.project_feed(u)  # [B, Q, gates]
        states: list[CellState] = []
        for layer, state in enumerate(layers):
            recurrence = self.cells.recurrence(layer, dropout)
            if layer > 0:
                gates = recurrence.project(self.dropout(states[-1][0]))  # [B, Q, gates]
            states.append(recurrence.step(gates, state))
        return states[-1][0], tuple(states)

    def unroll(
        self, x: Tensor, u: Tensor, layers: tuple[CellState, ...], dropout: tuple[Tensor, ...] = ()
    ) -> Tensor:
        """Return the top layer's outputs [B, T, H] of x [B, T, E], for a feed u [B, 1, U] of all steps.

        Other arguments are those of `step`.
        """
        gates = self.project_input(x) + self.project_feed(u)  # [B, T, gates]
        outputs = x
        for layer, state in enumerate(layers):
            recurrence = self.cells.recurrence(layer, dropout)
            if layer > 0:
                gates = recurrence.project(self.dropout(outputs))  # [B, T, gates]
            outputs, _ = unroll_padded(recurrence, gates, state)  # [B, T, H]
        return outputs
