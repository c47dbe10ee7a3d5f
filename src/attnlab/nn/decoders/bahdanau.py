"""Decoder in Bahdanau's order: attend with the previous state, then update the state."""

from typing import Unpack

from torch import Tensor

from attnlab.nn.attention import Attention
from attnlab.nn.decoders.base import DecoderOutput, DecoderState
from attnlab.nn.decoders.recurrent import RecurrentDecoder, RecurrentSettings
from attnlab.types import Memory


class BahdanauDecoder(RecurrentDecoder):
    """Bahdanau's order: attend with the previous state, then update the state.

    ::

        c_i = attend(s_{i-1})
        s_i = f(s_{i-1}, [y_{i-1}; c_i])

    Bahdanau, Cho & Bengio 2014 (arXiv 1409.0473), section 3.1. The query is the top layer's state, and the
    context is an input of the first layer.
    """

    def __init__(self, *, attention: Attention, **settings: Unpack[RecurrentSettings]) -> None:
        super().__init__(attention=attention, feed_size=attention.context_size, **settings)

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        query = state.layers[-1][0]  # [B, Q, H]
        context, weights, attention = self.attention(query, memory, keys, state.attention)
        top, layers = self.cells.step(inputs, context, state.layers, state.dropout)  # [B, Q, H]
        return DecoderOutput(top, context, weights), state._replace(layers=layers, attention=attention)
