"""Bag of embeddings: a memory without any context."""

from torch import Tensor

from attnlab.nn.encoders.base import Encoder, mean_state
from attnlab.nn.positions import Kind, make_positions
from attnlab.nn.transformer import input_map
from attnlab.settings import Size
from attnlab.types import Memory


class BagEncoder(Encoder):
    """The memory state of a token is its embedding, in any sentence and, by default, at any position.

    ::

        h_j = W e_j + p_j       p: position encodings, if any

    Attention weights over it cannot refer to anything but the token itself. The final state, from which a
    recurrent decoder starts, is the mean of the states.
    """

    def __init__(
        self, *, input_size: int, size: Size, positions: Kind = "none", max_positions: Size = 256
    ) -> None:
        super().__init__(memory_size=size, layers=1)
        self.input = input_map(input_size, size)
        self.positions = make_positions(positions, size=size, heads=None, max_positions=max_positions)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        states = self.positions.add(self.input(embedded))  # [B, S, D]
        return Memory(states=states, mask=mask, hidden=mean_state(states, mask))
