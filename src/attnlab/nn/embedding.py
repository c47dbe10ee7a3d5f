"""Token embeddings with their two kinds of dropout."""

import torch
from torch import Tensor, nn

from attnlab.nn.dropout import Dropout
from attnlab.settings import Fraction, Size
from attnlab.types import PAD, UNK


class TokenEmbedding(nn.Module):
    """Embedding table E y; the vector of PAD is zero and is not trained.

    Args:
        vocabulary_size: V
        size: E, the size of a vector.
        dropout: probability of zeroing each element of a vector.
        word_dropout: probability of zeroing the whole vector of a token (Gal & Ghahramani 2016, arXiv
            1512.05287; Sennrich & Zhang 2019, arXiv 1905.11901). The vectors that are kept are scaled up.
        marks: constant dimensions that follow the learned ones, without dropout, [V, M].
        readings: ids of the tokens as which each token is read, [V, K]. Their vectors follow one another; by
            default a token is read as itself (K = 1).
    """

    marks: Tensor | None
    readings: Tensor | None

    def __init__(
        self,
        *,
        vocabulary_size: int,
        size: Size,
        dropout: Fraction = 0.0,
        word_dropout: Fraction = 0.0,
        marks: Tensor | None = None,
        readings: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("marks", marks, persistent=False)
        self.register_buffer("readings", readings, persistent=False)
        self.table = nn.Embedding(vocabulary_size, size, padding_idx=PAD)
        self.dropout = Dropout(dropout)
        self.word_dropout = nn.Dropout1d(word_dropout)

    @property
    def reading_count(self) -> int:
        """Number of tokens as which each token is read, K."""
        return 1 if self.readings is None else self.readings.size(1)

    @property
    def width(self) -> int:
        """Size of an embedded token, K·E + M."""
        return self.reading_count * self.size + (0 if self.marks is None else self.marks.size(1))

    def forward(self, tokens: Tensor, dropout: Tensor | None = None) -> Tensor:
        """Embed tokens [B, T] int64 to [B, T, K·E + M].

        Args:
            tokens: ids; copied words, whose ids are V and above, are embedded as UNK.
            dropout: factors from `draw_dropout`, [B, T, E]; drawn here if not given.
        """
        in_vocabulary = tokens.masked_fill(tokens >= self.table.num_embeddings, UNK)  # [B, T]
        dropout = self.draw_dropout(tokens) if dropout is None else dropout  # [B, T, E]
        embedded: Tensor
        if self.readings is None:
            embedded = self.table(in_vocabulary)  # [B, T, E]
            embedded = embedded if dropout is None else embedded * dropout
        else:
            embedded = self.table(self.readings[in_vocabulary])  # [B, T, K, E]
            embedded = (embedded if dropout is None else embedded * dropout[:, :, None]).flatten(2)
        return embedded if self.marks is None else torch.cat([embedded, self.marks[in_vocabulary]], dim=-1)

    def draw_dropout(self, tokens: Tensor) -> Tensor | None:
        """Draw the dropout factors of the vectors of tokens [B, T], [B, T, E]; None without dropout."""
        if not self.training or (self.dropout.p == 0 and self.word_dropout.p == 0):
            return None
        ones = self.table.weight.new_ones(*tokens.shape, self.size)  # [B, T, E]
        factors: Tensor = self.dropout(ones)  # [B, T, E]
        return factors if self.word_dropout.p == 0 else factors * self.word_dropout(ones[..., :1])
