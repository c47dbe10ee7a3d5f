"""Decoder with finitely many states: binary state vectors, updated before attention."""

import torch
from torch import Tensor, nn

from attnlab.nn.attention import Attention
from attnlab.nn.cells import CellState, StateShape
from attnlab.nn.decoders.base import Decoder, DecoderOutput, DecoderState
from attnlab.settings import NotNegative, Probability, Size
from attnlab.types import Memory
from attnlab_parts.bits import sign


class FiniteStateDecoder(Decoder):
    """Finite-state control of the attention.

    ::

        u_i = tanh(W [y_{i-1}; c_{i-1}; s_{i-1}] + b)
        s_i = sign(V u_i + d + k ⊙ s_{i-1} + ε)      ±1; the gradient is that of tanh (straight-through)
        c_i = attend(s_i)

    The state is one of 2^H, so that it has no numbers that could drift or count over more steps than in
    training: with an attention that moves, such as `shift`, the network is a differentiable two-way finite
    transducer, whose only unbounded memory is the source and the positions of the attention. The gradient
    estimator is that of Bengio, Léonard & Courville 2013 (arXiv 1308.3432), section 3.

    k is 1 for the first bits, which are latches, and 0 for the others. A latch keeps its value until an
    update of more than 1 changes it. So a fact such as the number of the copy being written is kept over many
    steps before the network has learned to keep it. ε ~ N(0, σ²) in training, so that a bit that matters is
    learned with a distance to 0, as in semantic hashing (Salakhutdinov & Hinton 2009).

    Args:
        attention: a mechanism with queries of size H.
        input_size: E
        size: H, the number of bits.
        latches: share of the bits that are latches.
        noise: σ, the standard deviation of the noise in training.
    """

    kept: Tensor

    def __init__(
        self,
        *,
        attention: Attention,
        input_size: int,
        size: Size,
        latches: Probability = 0.0,
        noise: NotNegative = 0.0,
    ) -> None:
        super().__init__(attention=attention, output_size=size, state_shape=StateShape(size, 1, 1))
        kept = (torch.arange(size) < latches * size).float()  # [H]: k
        self.register_buffer("kept", kept, persistent=False)
        self.hidden = nn.Linear(input_size + attention.context_size + size, size)
        self.update = nn.Linear(size, size)
        self.noise = noise

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        feed = memory.states.new_zeros(len(memory.states), 1, self.attention.context_size)  # [B, 1, D]
        return DecoderState(layers, self.attention.begin(memory), feed=feed)

    def step(
        self, inputs: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        assert state.feed is not None
        previous = state.layers[0][0]  # [B, Q, H]
        joined = torch.cat([inputs, state.feed, previous], dim=-1)
        update = self.update(torch.tanh(self.hidden(joined))) + self.kept * previous  # [B, Q, H]
        if self.training and self.noise > 0:
            update = update + self.noise * torch.randn_like(update)
        bits = sign(update)  # [B, Q, H]
        context, weights, attention = self.attention(bits, memory, keys, state.attention)
        new = state._replace(layers=((bits,),), attention=attention, feed=context)
        return DecoderOutput(bits, context, weights), new
