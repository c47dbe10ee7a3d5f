"""Decoder whose state does not depend on the attention, for exact hard attention."""

from typing import Unpack

from torch import Tensor

from attnlab.nn.attention import Attention
from attnlab.nn.decoders.base import DecoderOutput, DecoderState
from attnlab.nn.decoders.recurrent import RecurrentDecoder, RecurrentSettings
from attnlab.types import Memory


class ExactHardDecoder(RecurrentDecoder):
    """Decoder of exact hard attention: its state reads the target alone.

    ::

        s_i = f(s_{i-1}, y_{i-1})
        α_i = attend(s_i)

    Wu, Shapiro & Cotterell 2018 (arXiv 1808.10024), section 3. Since no state depends on an alignment, the
    alignments can be summed out: see `attnlab.nn.marginal`.
    """

    def __init__(self, *, attention: Attention, **settings: Unpack[RecurrentSettings]) -> None:
        super().__init__(attention=attention, feed_size=0, **settings)

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        top, layers = self.cells.step(inputs, inputs[..., :0], state.layers, state.dropout)  # [B, Q, H]
        context, weights, attention = self.attention(top, memory, keys, state.attention)
        return DecoderOutput(top, context, weights), state._replace(layers=layers, attention=attention)

    def states(self, embedded: Tensor, state: DecoderState) -> Tensor:
        """Return the states of a whole target [B, T, H], computed layer by layer, of tokens [B, T, E]."""
        nothing = state.layers[0][0][..., :0]  # [B, 1, 0]
        return self.cells.unroll(embedded, nothing, state.layers, state.dropout)
