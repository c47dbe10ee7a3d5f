"""Recurrent encoders with ONNX's own operators, which can be traced for any length."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from attnlab.nn.cells import STEPS, CellState, Norms
from attnlab.nn.encoders import Encoder, RecurrentEncoder
from attnlab.types import Memory

GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""Order of torch's gates in ONNX: i, o, f, g of an LSTM and z, r, n of a GRU."""


class OnnxRecurrentEncoder(Encoder):
    """A `RecurrentEncoder` in evaluation mode, for tracing: the same function of the same parameters.

    Packed sequences cannot be traced. A layer is an ONNX operator LSTM or GRU, which takes the lengths; with
    layer normalisation, which these operators lack, a layer is a Scan of single steps.
    """

    def __init__(self, encoder: RecurrentEncoder) -> None:
        super().__init__(
            memory_size=encoder.memory_size, layers=encoder.layers, directions=encoder.directions
        )
        self.trained = encoder
        if encoder.norms is None:
            for layer in range(encoder.layers):
                parts = zip(*self._parts(layer), strict=True)
                weight, recurrent_weight, *biases = (
                    torch.stack([self._reorder(w) for w in p]) for p in parts
                )
                self.register_buffer(f"weight_{layer}", weight)  # [directions, gates, inputs]
                self.register_buffer(f"recurrent_{layer}", recurrent_weight)  # [directions, gates, units]
                self.register_buffer(f"bias_{layer}", torch.cat(biases, dim=1))  # [directions, 2 gates]

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        states, finals = embedded, []
        for layer in range(self.layers):
            run = self._operator if self.trained.norms is None else self._scan
            states, final = run(layer, states, lengths, mask)  # [B, S, D]; each [directions, B, units]
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

    def _operator(
        self, layer: int, inputs: Tensor, lengths: Tensor, mask: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
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

    def _scan(
        self, layer: int, inputs: Tensor, lengths: Tensor, mask: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Run a layer [B, S, I] step by step; return its outputs [B, S, D] and final states."""
        from torch._higher_order_ops.scan import scan

        assert self.trained.norms is not None
        cell, outputs, finals = STEPS[self.trained.cell], [], []
        for direction, (weight, recurrent_weight, bias, recurrent_bias) in enumerate(self._parts(layer)):
            norms: Any = self.trained.norms[layer * self.directions + direction]

            def step(
                state: CellState,
                position: tuple[Tensor, Tensor],
                norms: Norms = norms,
                weight: Tensor = recurrent_weight,
                bias: Tensor = recurrent_bias,
            ) -> tuple[CellState, Tensor]:
                from_input, real = position  # [B, gates], [B, 1]
                from_state = norms.state(F.linear(state[0], weight, bias))  # [B, gates]
                new = cell(norms.input(from_input), from_state, state, norms)
                new = tuple(torch.where(real, *parts) for parts in zip(new, state, strict=True))
                return new, torch.where(real, new[0], 0.0)

            gates = F.linear(inputs, weight, bias).transpose(0, 1)  # [S, B, gates]
            start = inputs.new_zeros(inputs.size(0), self.trained.network.hidden_size)  # [B, units]
            states = (start,) if self.trained.cell == "gru" else (start, start.clone())
            real = mask.transpose(0, 1)[..., None]  # [S, B, 1]
            final, output = scan(step, states, (gates, real), dim=0, reverse=direction == 1)
            outputs.append(output.transpose(0, 1))  # [B, S, units]
            finals.append(final)
        return torch.cat(outputs, dim=-1), [torch.stack(parts) for parts in zip(*finals, strict=True)]


def solve(decays: Tensor, inputs: Tensor) -> Tensor:
    """Return h_1 … h_S of h_t = a_t h_{t-1} + b_t step by step, for `LinearRecurrence.solve`.

    Its own solution takes log₂ S rounds, whose number a trace would fix.

    Args:
        decays: a, [B, S, U].
        inputs: b, [B, S, U].

    Returns:
        h, [B, S, U].
    """
    from torch._higher_order_ops.scan import scan

    def step(state: Tensor, position: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        decay, value = position  # each [B, U]
        new = decay * state + value
        return new, new.clone()

    start = inputs.new_zeros(inputs.size(0), inputs.size(2))  # [B, U]
    states: Tensor
    _, states = scan(step, start, (decays.transpose(0, 1), inputs.transpose(0, 1)), dim=0)  # [S, B, U]
    return states.transpose(0, 1)
