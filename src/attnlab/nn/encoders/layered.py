"""Layers of any recurrence over the source, in one or both directions."""

from collections.abc import Callable
from typing import Required, TypedDict

import torch
from torch import Tensor, nn

from attnlab.nn.dropout import Dropout
from attnlab.nn.encoders.base import Encoder
from attnlab.settings import Fraction, Size
from attnlab.types import Memory


class LayerSettings(TypedDict, total=False):
    """Settings that encoders pass to `LayeredEncoder`.

    Args:
        size: U, the number of units in each direction.
        layers: L, the number of layers.
        bidirectional: read the source in both directions; D = 2 x size, otherwise D = size.
        dropout: dropout probability of the output of each layer below the top.
    """

    input_size: Required[int]
    size: Required[Size]
    layers: Size
    bidirectional: bool
    dropout: Fraction


class LayeredEncoder(Encoder):
    """Layers of a recurrence, each reading the outputs of both directions of the layer below.

    Padding is skipped: it changes no state, and memory states at padding are zero.

    Args:
        make_part: returns one direction of a layer, for the width E of its inputs: a module that maps inputs
            [B, S, E] and their mask [B, S] to outputs [B, S, U], from left to right.
    """

    def __init__(
        self,
        make_part: Callable[[int], nn.Module],
        *,
        input_size: int,
        size: int,
        layers: int = 2,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        directions = 2 if bidirectional else 1
        super().__init__(memory_size=size * directions, layers=layers, directions=directions)
        widths = [input_size, *[self.memory_size] * (layers - 1)]
        self.parts = nn.ModuleList(make_part(width) for width in widths for _ in range(directions))
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        states, finals = embedded, []
        last = (lengths - 1).to(mask.device)[:, None, None]  # [B, 1, 1]
        for layer in range(self.layers):
            states = self.dropout(states) if layer > 0 else states
            first, *others = self.parts[layer * self.directions : (layer + 1) * self.directions]
            outputs = [first(states, mask), *(part(states.flip(1), mask.flip(1)).flip(1) for part in others)]
            end = outputs[0].gather(1, last.expand(-1, 1, outputs[0].size(-1)))[:, 0]  # [B, U]
            finals.append(torch.cat([end, *(each[:, 0] for each in outputs[1:])], dim=-1))  # [B, D]
            states = torch.cat(outputs, dim=-1).masked_fill(~mask[..., None], 0)  # [B, S, D]
        return Memory(states=states, mask=mask, hidden=torch.stack(finals, dim=1))
