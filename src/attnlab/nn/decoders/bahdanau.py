"""Decoder in Bahdanau's order: attend with the previous state, then update the state."""

from __future__ import annotations

from typing import Unpack

from torch import Tensor

from attnlab.nn.attention import Attention
from attnlab.nn.attention.baselines import is_constant
from attnlab.nn.cells import CellStack, CellState, StackSettings
from attnlab.nn.decoders.base import Decoder, DecoderOutput, DecoderState
from attnlab.settings import Size
from attnlab.types import Memory


class BahdanauDecoder(Decoder):
    """Bahdanau's order: attend with the previous state, then update the state.

    ::

        c_i = attend(s_{i-1})
        s_i = f(s_{i-1}, [y_{i-1}; c_i])

    Bahdanau, Cho & Bengio 2014 (arXiv 1409.0473), section 3.1. The query is the top layer's state, and the
    context is an input of the first layer.

    Args:
        input_size: E.
        attention: a mechanism with queries of size H.
        size: H.
        **cells: `layers`, `dropout`, `cell`, `layer_norm` and `recurrent_dropout` of
            `attnlab.nn.cells.CellStack`.
    """

    def __init__(
        self,
        *,
        input_size: int,
        attention: Attention,
        size: Size,
        **cells: Unpack[StackSettings],
    ) -> None:
        stack = CellStack(
            input_size=input_size,
            feed_size=attention.context_size,
            size=size,
            **cells,
        )
        super().__init__(attention=attention, output_size=size, state_shape=stack.state_shape)
        self.cells = stack

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        return DecoderState(layers, self.attention.begin(memory), self.cells.cells.draw_dropout(layers))

    def project(self, embedded: Tensor) -> Tensor:
        return self.cells.project_input(embedded)  # [B, T, gates]

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        query = state.layers[-1][0]  # [B, Q, H]
        context, weights, attention = self.attention(query, memory, keys, state.attention)
        top, layers = self.cells.step(inputs, context, state.layers, state.dropout)  # [B, Q, H]
        return DecoderOutput(top, context, weights), state._replace(layers=layers, attention=attention)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        if not is_constant(self.attention):
            return super().forward(embedded, state, memory, keys)
        # no step depends on the attention of another
        contexts, weights, _ = self.attention(state.layers[-1][0], memory, keys, None)  # [B, 1, …]
        tops = self.cells.unroll(embedded, contexts, state.layers, state.dropout)  # [B, T, H]
        T = embedded.size(1)
        return DecoderOutput(tops, contexts.expand(-1, T, -1), weights.expand(-1, T, -1))
