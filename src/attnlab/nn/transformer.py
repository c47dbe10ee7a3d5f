"""Parts that the Transformer's encoder and decoder share: self-attention and the feed-forward network.

R sequences · T positions · P earlier positions · H width · N heads · d = H / N
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.positions import Positions

Cache = tuple[Tensor, Tensor]  # Keys and values of the earlier positions, each [R, N, P, d]


class SelfAttention(nn.Module):
    """Multi-head self-attention by torch's `scaled_dot_product_attention`.

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.2. Parameters and their layout are those of
    `torch.nn.MultiheadAttention`.
    """

    def __init__(self, *, size: int, heads: int) -> None:
        super().__init__()
        if size % heads:
            raise ValueError(f"heads={heads} must divide size={size}")
        self.heads = heads
        self.input = nn.Linear(size, 3 * size)
        self.output = nn.Linear(size, size)
        nn.init.xavier_uniform_(self.input.weight)
        nn.init.zeros_(self.input.bias)
        nn.init.zeros_(self.output.bias)

    def forward(
        self, x: Tensor, positions: Positions, allowed: Tensor | None, cache: Cache | None = None
    ) -> tuple[Tensor, Cache]:
        """Attend from each of T positions to the P earlier ones and to the T.

        Args:
            x: [R, T, H].
            positions: rotates queries and keys, or adds a bias to the scores.
            allowed: True where a position may attend, broadcastable to [R, N, T, P + T]; None: everywhere.
            cache: keys and values of the earlier positions; None if there are none.

        Returns:
            [R, T, H], and keys and values of all P + T positions.
        """
        parts = self.input(x).unflatten(-1, (3, self.heads, -1))  # [R, T, 3, N, d]
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # each [R, N, T, d]
        first = 0 if cache is None else cache[0].size(2)  # P
        query, key = positions.rotate(query, first), positions.rotate(key, first)
        if cache is not None:
            key, value = (torch.cat(pair, dim=2) for pair in zip(cache, (key, value), strict=True))
        mask = allowed
        bias = positions.bias(query.size(2), key.size(2), query)  # [N, T, P + T]
        if bias is not None:
            mask = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # [R, N, T, d]
        return self.output(context.transpose(1, 2).flatten(2)), (key, value)


class FeedForward(nn.Sequential):
    """Position-wise feed-forward network: W₂ relu(W₁ x + b₁) + b₂.

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.3.

    The width of the hidden layer is `expansion` times H.
    """

    def __init__(self, *, size: int, expansion: float) -> None:
        width = round(size * expansion)
        super().__init__(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, size))


def input_map(input_size: int, size: int) -> nn.Module:
    """Return the map of vectors [..., E] to [..., H]: linear, or none if the sizes are equal."""
    return nn.Identity() if input_size == size else nn.Linear(input_size, size)
