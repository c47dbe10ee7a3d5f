"""Decoder in Luong's order: update the state, then attend with the new state."""

from typing import Unpack

import torch
from torch import Tensor, nn

from attnlab.nn.attention import Attention
from attnlab.nn.cells import CellState
from attnlab.nn.decoders.base import DecoderOutput, DecoderState, attend_positions
from attnlab.nn.decoders.recurrent import RecurrentDecoder, RecurrentSettings
from attnlab.types import Memory


class LuongDecoder(RecurrentDecoder):
    """Luong's order: update the state, then attend with the new state.

    ::

        s_i = f(s_{i-1}, [y_{i-1}; h̃_{i-1}])     h̃ only with input feeding
        c_i = attend(s_i)
        h̃_i = tanh(W [c_i; s_i])                 the attentional vector, which is the readout's state

    Luong, Pham & Manning 2015 (arXiv 1508.04025), sections 3 and 3.3. Without input feeding the recurrence
    does not depend on the attention, and a stateless mechanism is called once for all target positions.

    Args:
        input_feeding: feed the attentional vector h̃_{i-1} to the next step.
    """

    def __init__(
        self, *, attention: Attention, input_feeding: bool = True, **settings: Unpack[RecurrentSettings]
    ) -> None:
        size = settings["size"]
        combine = nn.Linear(attention.context_size + size, size, bias=False)
        super().__init__(attention=attention, feed_size=size if input_feeding else 0, **settings)
        self.input_feeding = input_feeding
        self.combine = combine

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        feed = self._feed(torch.zeros_like(layers[-1][0]))
        return super().begin(layers, memory)._replace(feed=feed)

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        assert state.feed is not None
        top, layers = self.cells.step(inputs, state.feed, state.layers, state.dropout)  # [B, Q, H]
        contexts, weights, attention = self.attention(top, memory, keys, state.attention)
        states = torch.tanh(self.combine(torch.cat([contexts, top], dim=-1)))  # [B, Q, H]
        state = state._replace(layers=layers, attention=attention, feed=self._feed(states))
        return DecoderOutput(states, contexts, weights), state

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        if self.input_feeding:
            return super().forward(embedded, state, memory, keys)
        assert state.feed is not None
        tops = self.cells.unroll(embedded, state.feed, state.layers, state.dropout)  # [B, T, H]
        contexts, weights, _ = attend_positions(
            self.attention, tops, memory, keys, state.attention, positions=tops.size(1)
        )
        states = torch.tanh(self.combine(torch.cat([contexts, tops], dim=-1)))  # [B, T, H]
        return DecoderOutput(states, contexts, weights)

    def _feed(self, states: Tensor) -> Tensor:
        """Return the part of h̃ [B, Q, H] that is fed back: all of it, or none ([B, Q, 0])."""
        return states if self.input_feeding else states[..., :0]
