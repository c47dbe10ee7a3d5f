"""Recurrent encoders with ONNX's own operators, which can be traced for any length."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attnlab.nn.encoders import Encoder, RecurrentEncoder
from attnlab.types import Memory

GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""Order of torch's gates in ONNX: i, o, f, g of an LSTM and z, r, n of a GRU."""


class OnnxRecurrentEncoder(Encoder):
    """A `RecurrentEncoder` in evaluation mode, for tracing: the same function of the same parameters.

    Packed sequences cannot be traced. A layer is an ONNX operator LSTM or GRU, which takes the lengths.
    """

    def __init__(self, encoder: RecurrentEncoder) -> None:
        super().__init__(
            memory_size=encoder.memory_size, layers=encoder.layers, directions=encoder.directions
        )
        self.trained = encoder
        for layer in range(encoder.layers):
            parts = zip(*self._parts(layer), strict=True)
            weight, recurrent_weight, *biases = (torch.stack([self._reorder(w) for w in p]) for p in parts)
            self.register_buffer(f"weight_{layer}", weight)  # [directions, gates, inputs]
            self.register_buffer(f"recurrent_{layer}", recurrent_weight)  # [directions, gates, units]
            self.register_buffer(f"bias_{layer}", torch.cat(biases, dim=1))  # [directions, 2 gates]

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        states, finals = embedded, []
        for layer in range(self.layers):
            states, final = self._operator(layer, states, lengths)  # [B, S, D]; each [directions, B, units]
            finals.append([part.transpose(0, 1).flatten(1) for part in final])  # each [B, D]
        hidden, *cell = (torch.stack(parts, dim=1) for parts in zip(*finals, strict=True))  # each [B, L, D]
        return Memory(states=states, mask=mask, hidden=hidden, cell=cell[0] if cell else None)

    def _parts(self, layer: int) -> list[list[Tensor]]:
        """Return W, U and both biases of each direction of a layer."""
        first = layer * self.directions
        return [list(part) for part in self.trained.network.all_weights[first : first + self.directions]]

    def _reorder(self, weight: Tensor) -> Tensor:
        """Return a weight or bias [gates, …] with ONNX's order of the gates."""
        gates = weight.detach().chunk(len(GATES[self.trained.cell]))
        return torch.cat([gates[gate] for gate in GATES[self.trained.cell]])

    def _operator(self, layer: int, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Run a layer [B, S, I] as one operator; return its outputs [B, S, D] and final states."""
        B, S, _ = inputs.shape
        units, directions = self.trained.network.hidden_size, self.directions
        final = (directions, B, units)
        attributes = {"hidden_size": units, "direction": "forward" if directions == 1 else "bidirectional"}
        lstm = self.trained.cell == "lstm"
        weights = (getattr(self, f"{name}_{layer}") for name in ("weight", "recurrent", "bias"))
        outputs, *finals = torch.onnx.ops.symbolic_multi_out(
            "LSTM" if lstm else "GRU",
            (inputs.transpose(0, 1), *weights, lengths.int()),
            attrs=attributes if lstm else {**attributes, "linear_before_reset": 1},
            dtypes=(torch.float32,) * (3 if lstm else 2),
            shapes=((S, directions, B, units), *[final] * (2 if lstm else 1)),
            version=14,
        )
        return outputs.permute(2, 0, 1, 3).flatten(2), finals  # [B, S, D]
