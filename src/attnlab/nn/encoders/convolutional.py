"""Convolutional encoder: gated convolutions with residual connections."""

import math

import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.dropout import Dropout
from attnlab.nn.encoders.base import Encoder, mean_state
from attnlab.nn.positions import Kind, make_positions
from attnlab.nn.transformer import input_map
from attnlab.settings import Fraction, Odd, Size
from attnlab.types import Memory


class ConvolutionalEncoder(Encoder):
    """Gated convolutions with residual connections (Gehring et al., 2017).

    ::

        x⁰ = W e + p                                     p: position encodings
        xˡ = √½ (xˡ⁻¹ + GLU(convolution(xˡ⁻¹)))          of k positions, padded with zeros

    Gehring et al. 2017 (arXiv 1705.03122), sections 3.1 to 3.3. A state depends on 1 + L (k - 1) positions.
    There is no weight normalisation, and the attention reads xᴸ alone (in the paper: xᴸ + x⁰ as values). The
    final state, from which a recurrent decoder starts, is the mean of the states.

    Args:
        layers: L, the number of layers.
        kernel: k, the number of positions per convolution, odd.
        dropout: dropout probability of the embeddings and of the input of each convolution.
    """

    def __init__(
        self,
        *,
        input_size: int,
        size: Size,
        layers: Size = 3,
        kernel: Odd = 3,
        dropout: Fraction = 0.0,
        positions: Kind = "learned",
        max_positions: Size = 256,
    ) -> None:
        super().__init__(memory_size=size, layers=1)
        self.input = input_map(input_size, size)
        self.positions = make_positions(positions, size=size, heads=None, max_positions=max_positions)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(size, 2 * size, kernel, padding=kernel // 2) for _ in range(layers)
        )
        for convolution in self.convolutions:
            nn.init.normal_(convolution.weight, std=math.sqrt(4 * (1 - dropout) / (kernel * size)))  # type: ignore[arg-type]
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        self.dropout = Dropout(dropout)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        padding = ~mask[..., None]  # [B, S, 1]
        x = self.dropout(self.positions.add(self.input(embedded)))  # [B, S, D]
        for convolution in self.convolutions:
            inputs = self.dropout(x).masked_fill(padding, 0)  # [B, S, D]
            gated = F.glu(convolution(inputs.transpose(1, 2)), dim=1)  # [B, D, S]
            x = (x + gated.transpose(1, 2)) * math.sqrt(0.5)
        return Memory(states=x, mask=mask, hidden=mean_state(x, mask))
