"""Token embeddings, with the two dropouts that belong to them."""

from __future__ import annotations

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

    def forward(self, tokens: Tensor, keep: Tensor | None = None) -> Tensor:
        """[B, T] int64 to [B, T, E].

        Args:
            tokens: to look up.
            keep: what `draw` gave; drawn anew where it is not given.
        """
        known = tokens.masked_fill(tokens >= self.table.num_embeddings, UNK)  # copied words are read as UNK
        embedded: Tensor = self.table(known)  # [B, T, E]
        keep = self.draw_dropout(tokens) if keep is None else keep
        return embedded if keep is None else embedded * keep

    def draw_dropout(self, tokens: Tensor) -> Tensor | None:
        """What the vectors of tokens [B, T] are multiplied by, [B, T, E]; None for nothing."""
        if not self.training or (self.dropout.p == 0 and self.word_dropout.p == 0):
            return None
        ones = self.table.weight.new_ones(*tokens.shape, self.size)
        kept: Tensor = self.dropout(ones)
        return kept if self.word_dropout.p == 0 else kept * self.word_dropout(ones[..., :1])
