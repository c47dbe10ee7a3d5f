"""The encoder: from an embedded source to a memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnlab.nn.cells import Kind, Norms, Recurrence
from attnlab.nn.fused.linear import linear
from attnlab.types import Memory

RECURRENT = {"lstm": nn.LSTM, "gru": nn.GRU}


class Encoder(nn.Module):
    """A recurrent network over the source, in one or both directions.

    h_j = [forward h_j; backward h_j]. Padding is skipped, not read: it changes no state and no final state,
    and memory states at padding are zero.

    Args:
        input_size: E.
        cell: "lstm" or "gru".
        size: units in each direction.
        layers: L.
        bidirectional: read the source from both ends; D = 2 x size, else D = size.
        dropout: on what goes from a layer to the next.
        layer_norm: as in `attnlab.nn.cells.Cells`.
        recurrent_dropout: as in `attnlab.nn.cells.Cells`.
    """

    def __init__(
        self,
        *,
        input_size: int,
        cell: Kind = "lstm",
        size: int,
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.cell: Kind = cell
        self.layers = layers
        self.recurrent_dropout = recurrent_dropout
        self.directions = 2 if bidirectional else 1
        self.memory_size = size * self.directions
        self.network = RECURRENT[cell](
            input_size,
            size,
            num_layers=layers,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
            batch_first=True,
        )
        parts = layers * self.directions
        self.norms = nn.ModuleList(Norms(cell, size) for _ in range(parts)) if layer_norm else None

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        """Read the sources.

        Args:
            embedded: [B, S, E].
            lengths: [B] int64, on the CPU, each at least 1.
            mask: [B, S], True at real tokens.
        """
        known = self.norms is None and not (self.training and self.recurrent_dropout > 0)
        by_torch = known and embedded.device.type != "cpu"  # which on the CPU is slower
        states, final = (self.read_by_torch if by_torch else self.read_by_hand)(embedded, lengths)
        hidden, cell = final if isinstance(final, tuple) else (final, None)
        return Memory(
            states=states,
            mask=mask,
            hidden=self._side_by_side(hidden),
            cell=None if cell is None else self._side_by_side(cell),
        )

    def read_by_torch(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
        """Torch's own network: states [B, S, D], and its last states [L * directions, B, units]."""
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, final = self.network(packed)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=embedded.size(1))
        return states, final

    def read_by_hand(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
        """The same by a loop of ours, which can do more, and is faster where torch has no loop of its own."""
        B, S, _ = embedded.shape
        lengths, order = lengths.sort(descending=True, stable=True)
        steps = torch.arange(S)[:, None]  # [S, 1]
        real = steps < lengths  # [S, B]
        counts = real.sum(dim=1)[: int(lengths[0])].tolist()  # the sentences that have an i-th token
        places = (order * S + steps)[real]  # [N]: of each step's tokens in a batch laid flat
        states = embedded.flatten(0, 1).index_select(0, places)  # [N, E]
        finals = []
        for layer in range(self.layers):
            outputs = []
            for direction in range(self.directions):
                part = layer * self.directions + direction
                weight, recurrent, *biases = self.network.all_weights[part]
                gates = linear(states, weight, biases[0])  # [N, gates]
                start = gates.new_zeros(B, self.network.hidden_size)
                recurrence = Recurrence(
                    self.cell,
                    recurrent,
                    biases[1],
                    None if self.norms is None else self.norms[part],  # type: ignore[arg-type]
                    self._draw(start),
                )
                output, *final = recurrence.read(
                    gates, (start,) * (2 if self.cell == "lstm" else 1), counts, reverse=direction == 1
                )
                outputs.append(output)
                finals.append(final)
            states = torch.cat(outputs, dim=1)  # [N, D]
            if layer + 1 < self.layers:
                states = F.dropout(states, self.network.dropout, self.training)
        back = order.argsort()
        hidden, *cell = [torch.stack(parts)[:, back] for parts in zip(*finals, strict=True)]
        padded = states.new_zeros(B * S, states.size(1)).index_copy(0, places, states).view(B, S, -1)
        return padded, (hidden, *cell) if cell else hidden

    def _draw(self, state: Tensor) -> Tensor | None:
        """What a state [B, units] is multiplied by where it is read back."""
        if not self.training or self.recurrent_dropout == 0:
            return None
        return F.dropout(torch.ones_like(state), self.recurrent_dropout)

    def _side_by_side(self, final: Tensor) -> Tensor:
        """Torch's [L * directions, B, units] as [B, L, D]."""
        by_layer = final.view(self.layers, self.directions, *final.shape[1:])  # [L, directions, B, units]
        return by_layer.permute(2, 0, 1, 3).flatten(2)  # [B, L, D]
