"""Base class of decoders whose state is that of a stack of cells."""

from typing import Required, Unpack

from torch import Tensor

from attnlab.nn.attention import Attention
from attnlab.nn.cells import CellSettings, CellStack, CellState
from attnlab.nn.decoders.base import Decoder, DecoderState
from attnlab.settings import Fraction, Size
from attnlab.types import Memory


class RecurrentSettings(CellSettings, total=False):
    """Settings that recurrent decoders pass on to their `CellStack`.

    Args:
        input_size: E
        size: H, the number of units.
        layers: L, the number of layers.
        dropout: dropout probability of the output of each layer below the top.
    """

    input_size: Required[int]
    size: Required[Size]
    layers: Size
    dropout: Fraction


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
