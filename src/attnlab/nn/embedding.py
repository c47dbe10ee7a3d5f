"""Token embeddings, with the two dropouts that belong to them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnlab.nn.dropout import Dropout
from attnlab.types import PAD, UNK


class TokenEmbedding(nn.Module):
    """E y: one vector a token; that of PAD starts at zero and reading it never moves it.

    Args:
        vocabulary_size: V.
        size: E.
        dropout: chance of each number of a vector to be dropped.
        word_dropout: chance of each token's whole vector to be dropped (Gal & Ghahramani 2016, arXiv
            1512.05287; Sennrich & Zhang 2019, arXiv 1905.11901). The vectors kept are scaled up in return.
    """

    def __init__(
        self, *, vocabulary_size: int, size: int, dropout: float = 0.0, word_dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.size = size
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
        self.dropout = Dropout(dropout)
        self.word_dropout = nn.Dropout1d(word_dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T] int64 to [B, T, E]."""
        known = tokens.masked_fill(tokens >= self.table.num_embeddings, UNK)  # copied words are read as UNK
        embedded: Tensor = self.dropout(self.table(known))  # [B, T, E]
        if self.training and self.word_dropout.p > 0:
            keep = self.word_dropout(torch.ones_like(embedded[..., :1]))  # [B, T, 1]
            embedded = embedded * keep
        return embedded
