"""Token embeddings with their two kinds of dropout."""

from typing import Required, TypedDict

from torch import Tensor, nn

from attnlab.nn.dropout import Dropout
from attnlab.settings import Fraction, Size
from attnlab.types import PAD, UNK


class EmbeddingSettings(TypedDict, total=False):
    """Arguments of `TokenEmbedding`, for subclasses with further ones."""

    vocabulary_size: Required[int]
    size: Required[Size]
    dropout: Fraction
    word_dropout: Fraction


class TokenEmbedding(nn.Module):
    """Embedding table E y; the vector of PAD is zero, and only a tied output layer changes it.

    Args:
        vocabulary_size: V
        size: E, the size of a vector.
        dropout: probability of zeroing each element of a vector.
        word_dropout: probability of zeroing the whole vector of a token (Sennrich & Zhang 2019, arXiv
            1905.11901). Each occurrence is drawn on its own, unlike in Gal & Ghahramani (2016, arXiv
            1512.05287). The vectors that are kept are scaled up.
    """

    def __init__(
        self, *, vocabulary_size: int, size: Size, dropout: Fraction = 0.0, word_dropout: Fraction = 0.0
    ) -> None:
        super().__init__()
        self.size = size
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
        self.dropout = Dropout(dropout)
        self.word_dropout = nn.Dropout1d(word_dropout)

    @property
    def width(self) -> int:
        """Size of an embedded token; E, unless a subclass adds dimensions."""
        return self.size

    def forward(self, tokens: Tensor, dropout: Tensor | None = None) -> Tensor:
        """Embed tokens [B, T] to [B, T, width], with dropout factors of `draw_dropout` or new ones."""
        dropout = self.draw_dropout(tokens) if dropout is None else dropout  # [B, T, E]
        embedded: Tensor = self.table(self.in_vocabulary(tokens))  # [B, T, E]
        return embedded if dropout is None else embedded * dropout

    def in_vocabulary(self, tokens: Tensor) -> Tensor:
        """Return tokens [B, T] with UNK in the place of copied words, whose ids are V and above."""
        return tokens.masked_fill(tokens >= self.table.num_embeddings, UNK)

    def draw_dropout(self, tokens: Tensor) -> Tensor | None:
        """Draw the dropout factors of the vectors of tokens [B, T], [B, T, E]; None without dropout."""
        if not self.training or (self.dropout.p == 0 and self.word_dropout.p == 0):
            return None
        ones = self.table.weight.new_ones(*tokens.shape, self.size)  # [B, T, E]
        factors: Tensor = self.dropout(ones)  # [B, T, E]
        return factors if self.word_dropout.p == 0 else factors * self.word_dropout(ones[..., :1])
