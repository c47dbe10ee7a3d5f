"""Recurrent encoder: an LSTM or GRU in one or both directions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnlab.nn.cells import Kind, Norms, Recurrence
from attnlab.nn.encoders.base import Encoder
from attnlab.settings import Fraction, Size
from attnlab.types import Memory

NETWORKS = {"lstm": nn.LSTM, "gru": nn.GRU}


class RecurrentEncoder(Encoder):
    """A recurrent network over the source: h_j = [forward h_j; backward h_j].

    Padding is skipped: it changes no state, and memory states at padding are zero.

    Args:
        cell: "lstm" or "gru".
        size: hidden size of each direction.
        layers: L, the number of layers.
        bidirectional: read the source in both directions; D = 2 x size, otherwise D = size.
        layer_norm: use layer normalisation inside the cells.
        recurrent_dropout: dropout probability of the recurrent state, with one mask for all steps.
    """

    def __init__(
        self,
        *,
        input_size: int,
        cell: Kind = "lstm",
        size: Size,
        layers: Size = 1,
        bidirectional: bool = True,
        dropout: Fraction = 0.0,
        layer_norm: bool = False,
        recurrent_dropout: Fraction = 0.0,
    ) -> None:
        directions = 2 if bidirectional else 1
        super().__init__(memory_size=size * directions, layers=layers, directions=directions)
        self.cell: Kind = cell
        self.recurrent_dropout = recurrent_dropout
        self.network = NETWORKS[cell](
            input_size,
            size,
            num_layers=layers,
            bidirectional=bidirectional,
            dropout=dropout if layers > 1 else 0.0,
            batch_first=True,
        )
        parts = layers * directions
        self.norms = nn.ModuleList(Norms(cell, size) for _ in range(parts)) if layer_norm else None

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        dropout = self.training and self.recurrent_dropout > 0
        if self.norms is not None or dropout or is_bf16_on_cpu(embedded):
            # torch's network has no layer normalisation or recurrent dropout, and in bf16 an LSTM for
            # batches of equal lengths only on CPUs with units for it
            return self.run_layers(embedded, lengths, mask)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        packed, final = self.network(packed)
        states, _ = pad_packed_sequence(packed, batch_first=True, total_length=embedded.size(1))
        return self._memory(states, mask, final if isinstance(final, tuple) else (final,))

    def run_layers(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        """Encode like `forward`, layer by layer, where each layer is a `Recurrence`."""
        B, S, _ = embedded.shape
        lengths, order = lengths.sort(descending=True, stable=True)
        steps = torch.arange(S)[:, None]  # [S, 1]
        real = steps < lengths  # [S, B]
        counts = real.sum(dim=1)[: int(lengths[0])].tolist()  # sentences that have an i-th token
        places = (order * S + steps)[real]  # position of each step's tokens in the flat batch, [N]
        places = places.to(embedded.device)
        states = embedded.flatten(0, 1).index_select(0, places)  # [N, E]
        finals = []
        for layer in range(self.layers):
            outputs = []
            for direction in range(self.directions):
                recurrence = self.recurrence(layer * self.directions + direction)
                gates = recurrence.project(states)  # [N, gates]
                start = gates.new_zeros(B, self.network.hidden_size)  # [B, units]
                if self.training and self.recurrent_dropout > 0:
                    recurrence.dropout = F.dropout(torch.ones_like(start), self.recurrent_dropout)
                output, *final = recurrence.unroll(
                    gates, (start,) * (2 if self.cell == "lstm" else 1), counts, reverse=direction == 1
                )
                outputs.append(output)
                finals.append(final)
            states = torch.cat(outputs, dim=1)  # [N, D]
            if layer + 1 < self.layers:
                states = F.dropout(states, self.network.dropout, self.training)
        unsorted = order.argsort()
        final = [torch.stack(parts)[:, unsorted] for parts in zip(*finals, strict=True)]
        padded = states.new_zeros(B * S, states.size(1)).index_copy(0, places, states)  # [B S, D]
        return self._memory(padded.view(B, S, -1), mask, tuple(final))

    def recurrence(self, part: int) -> Recurrence:
        """Return one direction of a layer, in the order of torch's parameters."""
        weight, recurrent_weight, bias, recurrent_bias = self.network.all_weights[part]
        norms: Any = None if self.norms is None else self.norms[part]
        return Recurrence(self.cell, weight, bias, recurrent_weight, recurrent_bias, norms)

    def _memory(self, states: Tensor, mask: Tensor, final: tuple[Tensor, ...]) -> Memory:
        """Build the memory from states [B, S, D] and torch's final states [L * directions, B, units]."""
        by_layer = [part.view(self.layers, self.directions, *part.shape[1:]) for part in final]
        hidden, *cell = [part.permute(2, 0, 1, 3).flatten(2) for part in by_layer]  # each [B, L, D]
        return Memory(states=states, mask=mask, hidden=hidden, cell=cell[0] if cell else None)


def is_bf16_on_cpu(x: Tensor) -> bool:
    """Return whether a network computes with inputs of any shape in bf16 on a CPU."""
    if x.device.type != "cpu":
        return False
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    return dtype == torch.bfloat16
