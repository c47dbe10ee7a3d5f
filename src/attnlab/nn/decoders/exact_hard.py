"""Decoder whose state does not depend on the attention, for exact hard attention."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from attnlab.nn.attention import Attention
from attnlab.nn.cells import CellStack, CellState, StackSettings
from attnlab.nn.decoders.base import Decoder, DecoderOutput, DecoderState, attend_positions
from attnlab.settings import Size
from attnlab.types import Memory


class ExactHardDecoder(Decoder):
    """Decoder of exact hard attention: its state reads the target alone.

    ::

        s_i = f(s_{i-1}, y_{i-1})
        α_i = attend(s_i)

    Wu, Shapiro & Cotterell 2018 (arXiv 1808.10024), section 3. Since no state depends on an alignment, the
    alignments can be summed out: see `attnlab.nn.marginal`. A whole target is computed layer by layer.

    Args:
        input_size: E.
        attention: a mechanism with queries of size H.
        size: H.
        **cells: `layers`, `dropout`, `cell`, `layer_norm` and `recurrent_dropout` of
            `attnlab.nn.cells.CellStack`.
    """

    def __init__(
        self, *, input_size: int, attention: Attention, size: Size, **cells: Unpack[StackSettings]
    ) -> None:
        stack = CellStack(input_size=input_size, feed_size=0, size=size, **cells)
        super().__init__(attention=attention, output_size=size, state_shape=stack.state_shape)
        self.cells = stack

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        return DecoderState(layers, self.attention.begin(memory), self.cells.cells.draw_dropout(layers))

    def project(self, embedded: Tensor) -> Tensor:
        return self.cells.project_input(embedded)  # [B, T, gates]

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        top, layers = self.cells.step(inputs, inputs[..., :0], state.layers, state.dropout)  # [B, Q, H]
        context, weights, attention = self.attention(top, memory, keys, state.attention)
        return DecoderOutput(top, context, weights), state._replace(layers=layers, attention=attention)

    def states(self, embedded: Tensor, state: DecoderState) -> Tensor:
        """Return the states of a whole target, [B, T, H] for embedded tokens [B, T, E]."""
        nothing = state.layers[0][0][..., :0]  # [B, 1, 0]
        return self.cells.unroll(embedded, nothing, state.layers, state.dropout)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        tops = self.states(embedded, state)  # [B, T, H]
        contexts, weights, _ = attend_positions(
            self.attention, tops, memory, keys, state.attention, positions=tops.size(1)
        )
        return DecoderOutput(tops, contexts, weights)
