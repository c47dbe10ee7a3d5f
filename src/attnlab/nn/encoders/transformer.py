"""Transformer encoder: layers of self-attention, normalised before each part."""

from typing import cast

from torch import Tensor, nn

from attnlab.nn.dropout import Dropout
from attnlab.nn.encoders.base import Encoder, mean_state
from attnlab.nn.positions import Kind, Positions, make_positions
from attnlab.nn.transformer import FeedForward, SelfAttention, input_map
from attnlab.settings import Fraction, Positive, Size
from attnlab.types import Memory


class EncoderLayer(nn.Module):
    """Pre-norm layer: x + attend(LN(x)), then x + feed_forward(LN(x))."""

    def __init__(self, *, size: int, heads: int, expansion: float, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(size=size, heads=heads)
        self.feed_forward = FeedForward(size=size, expansion=expansion)
        self.attention_norm = nn.LayerNorm(size)
        self.feed_forward_norm = nn.LayerNorm(size)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, positions: Positions, allowed: Tensor) -> Tensor:
        """Map [B, S, H] to [B, S, H]; `allowed` [B, 1, 1, S] is True at real tokens."""
        attended, _ = self.attention(self.attention_norm(x), positions, allowed)
        x = x + self.dropout(attended)
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))  # type: ignore[no-any-return]


class TransformerEncoder(Encoder):
    """Transformer encoder with normalisation before each part (pre-norm).

    Vaswani et al. 2017 (arXiv 1706.03762); pre-norm as in Xiong et al. 2020 (arXiv 2002.04745), with a last
    layer normalisation. The final state, from which a recurrent decoder starts, is the mean of the states.

    Args:
        layers: number of layers.
        heads: N, a divisor of D.
        expansion: width of the feed-forward networks as a multiple of D.
        dropout: dropout probability of the output of each sublayer.
    """

    def __init__(
        self,
        *,
        input_size: int,
        size: Size,
        layers: Size = 2,
        heads: Size = 4,
        expansion: Positive = 4,
        dropout: Fraction = 0.0,
        positions: Kind = "sinusoidal",
        max_positions: Size = 256,
    ) -> None:
        super().__init__(memory_size=size, layers=1)
        self.input = input_map(input_size, size)
        self.positions = make_positions(positions, size=size, heads=heads, max_positions=max_positions)
        self.blocks = nn.ModuleList(
            EncoderLayer(size=size, heads=heads, expansion=expansion, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(size)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        x = self.positions.add(self.input(embedded))  # [B, S, D]
        for block in self.blocks:
            x = block(x, self.positions, mask[:, None, None])
        states = cast(Tensor, self.norm(x))  # [B, S, D]
        return Memory(states=states, mask=mask, hidden=mean_state(states, mask))
