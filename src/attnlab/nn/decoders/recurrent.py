"""Base class of decoders whose state is that of a stack of cells."""

from typing import Required, Unpack

from torch import Tensor

from attnlab.nn.attention import Attention
from attnlab.nn.cells import CellStack, CellState, StackSettings
from attnlab.nn.decoders.base import Decoder, DecoderState
from attnlab.settings import Size
from attnlab.types import Memory


class RecurrentSettings(StackSettings, total=False):
    """Settings that recurrent decoders pass on.

    Args:
        input_size: E
        size: H, the number of units.
    """

    input_size: Required[int]
    size: Required[Size]


class RecurrentDecoder(Decoder):
    """Decoder with a `CellStack`; a subclass says when it attends and what its first layer reads.

    Args:
        attention: a mechanism with queries of size H.
        feed_size: width of what the first layer reads beside the embedded token.
        **settings: of the `CellStack`.
    """

    def __init__(
        self, *, attention: Attention, feed_size: int, **settings: Unpack[RecurrentSettings]
    ) -> None:
        cells = CellStack(feed_size=feed_size, **settings)
        super().__init__(attention=attention, output_size=cells.size, state_shape=cells.state_shape)
        self.cells = cells

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        return DecoderState(layers, self.attention.begin(memory), self.cells.cells.draw_dropout(layers))

    def project(self, embedded: Tensor) -> Tensor:
        return self.cells.project_input(embedded)  # [B, T, gates]
