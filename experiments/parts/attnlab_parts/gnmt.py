"""Decoder in GNMT's order: attend with the first layer's new state; all layers above read the context."""

from typing import Annotated, Unpack

import torch
from annotated_types import Ge
from torch import Tensor, nn

from attnlab.nn.attention import Attention
from attnlab.nn.cells import Cells, CellSettings, CellState, StateShape, unroll_padded
from attnlab.nn.decoders.base import Decoder, DecoderOutput, DecoderState, attend_positions
from attnlab.settings import Fraction, Size
from attnlab.types import Memory


class GNMTDecoder(Decoder):
    """GNMT's order: update the first layer, attend with its state, and feed the context to all layers above.

    ::

        s¹_i = f¹(s¹_{i-1}, y_{i-1})
        c_i  = attend(s¹_i)
        sˡ_i = fˡ(sˡ_{i-1}, [sˡ⁻¹_i; c_i])     for l = 2 … L; the readout's state is that of the top layer

    Wu et al. 2016 (arXiv 1609.08144), section 3, as in NVIDIA's implementation: the query is s¹_i, where the
    paper has s¹_{i-1}. No layer depends on the context or on a layer above of the step before, so a whole
    target is computed one layer at a time: a stateless mechanism is called once for all positions, and the
    product of a layer with its input is one product for all positions. Only U sˡ_{i-1} remains in the loops.

    Args:
        layers: L, at least 2.
        dropout: dropout probability of the input [sˡ⁻¹_i; c_i] of each layer above the first.
        residual: add sˡ⁻¹_i to the output of layers l = 3 … L (residual connections).
        **cell: settings of the cells: see `attnlab.nn.cells.Cells`.
    """

    def __init__(
        self,
        *,
        input_size: int,
        attention: Attention,
        size: Size,
        layers: Annotated[int, Ge(2)] = 2,
        dropout: Fraction = 0.0,
        residual: bool = False,
        **cell: Unpack[CellSettings],
    ) -> None:
        widths = [input_size, *[size + attention.context_size] * (layers - 1)]
        cells = Cells(widths=widths, size=size, **cell)
        shape = StateShape(size, layers, cells.states_per_layer)
        super().__init__(attention=attention, output_size=size, state_shape=shape)
        self.cells = cells
        self.dropout = nn.Dropout(dropout)
        self.residual = residual

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        return DecoderState(layers, self.attention.begin(memory), self.cells.draw_dropout(layers))

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        return self._process(inputs, state, memory, keys, positions=1)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        output, _ = self._process(embedded, state, memory, keys, positions=embedded.size(1))
        return output

    def _process(
        self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor, positions: int
    ) -> tuple[DecoderOutput, DecoderState]:
        """Process several target positions along axis 1, or one position of several hypotheses."""
        tops, first = self._run_layer(0, embedded, state, positions)  # [B, Q, H]
        layers = [first]
        contexts, weights, attention = attend_positions(
            self.attention, tops, memory, keys, state.attention, positions=positions
        )
        for layer in range(1, len(self.cells)):
            inputs = self.dropout(torch.cat([tops, contexts], dim=-1))  # [B, Q, H + D]
            outputs, last = self._run_layer(layer, inputs, state, positions)  # [B, Q, H]
            layers.append(last)
            tops = outputs + tops if self.residual and layer > 1 else outputs
        state = state._replace(layers=tuple(layers), attention=attention)
        return DecoderOutput(tops, contexts, weights), state

    def _run_layer(
        self, layer: int, inputs: Tensor, state: DecoderState, positions: int
    ) -> tuple[Tensor, CellState]:
        """Return a layer's outputs [B, Q, H] for its inputs [B, Q, I], and its last state."""
        recurrence = self.cells.recurrence(layer, state.dropout)
        gates = recurrence.project(inputs)  # [B, Q, gates]
        if positions > 1:
            return unroll_padded(recurrence, gates, state.layers[layer])
        last = recurrence.step(gates, state.layers[layer])
        return last[0], last
