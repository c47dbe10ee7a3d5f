"""A custom encoder, decoder and mechanism, written outside the package."""

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.nn.attention import Attention, Dot
from attnlab.nn.cells import CellState
from attnlab.nn.decoders import Decoder, DecoderOutput, StateShape
from attnlab.nn.embedding import EmbeddingSettings, TokenEmbedding
from attnlab.nn.encoders import BagEncoder, Encoder
from attnlab.types import Memory


class ConvolutionalEncoder(Encoder):
    """h_j = tanh(convolution over the embeddings around j); the final state is the mean of the h_j.

    Args:
        input_size: E.
        size: D.
        kernel: width of the convolution, odd.
    """

    def __init__(self, *, input_size: int, size: int, kernel: int = 3) -> None:
        super().__init__(memory_size=size, layers=1)
        self.convolution = nn.Conv1d(input_size, size, kernel, padding=kernel // 2)

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        """Encode [B, S, E] to states [B, S, D]."""
        real = embedded * mask[..., None]  # [B, S, E]
        states = torch.tanh(self.convolution(real.transpose(1, 2)).transpose(1, 2))  # [B, S, D]
        states = states * mask[..., None]  # [B, S, D]
        mean = states.sum(dim=1, keepdim=True) / mask.sum(dim=1)[:, None, None]  # [B, 1, D]
        return Memory(states=states, mask=mask, hidden=mean)


class ElmanDecoder(Decoder):
    """s_i = tanh(W [y_{i-1}; s_{i-1}; c_i]) with c_i = attend(s_{i-1}).

    Args:
        input_size: E.
        attention: made for queries of size H.
        size: H.
    """

    def __init__(self, *, input_size: int, attention: Attention, size: int) -> None:
        shape = StateShape(size=size, layers=1, states_per_layer=1)
        super().__init__(attention=attention, output_size=size, state_shape=shape)
        self.map = nn.Linear(input_size + size + attention.context_size, size)

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> tuple[Tensor, Tensor | None]:
        """Return the initial state [B, 1, H] and that of the attention."""
        return layers[0][0], self.attention.begin(memory)

    def step(
        self, embedded: Tensor, state: tuple[Tensor, Tensor | None], memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, tuple[Tensor, Tensor | None]]:
        """Process one token [B, Q, E]."""
        hidden, attention = state
        context, weights, attention = self.attention(hidden, memory, keys, attention)
        hidden = torch.tanh(self.map(torch.cat([embedded, hidden, context], dim=-1)))  # [B, Q, H]
        return DecoderOutput(hidden, context, weights), (hidden, attention)


class MarkedEmbedding(TokenEmbedding):
    """Embedding whose last dimension is 1 at one token of its side."""

    def __init__(self, *, tokenizer: Tokenizer, token: str, **settings: Unpack[EmbeddingSettings]) -> None:
        super().__init__(**settings)
        marks = torch.zeros(tokenizer.size, 1)
        marks[tokenizer.id_of(token)] = 1
        self.register_buffer("marks", marks, persistent=False)

    @property
    def width(self) -> int:
        """Size of an embedded token."""
        return self.size + 1

    def forward(self, tokens: Tensor, dropout: Tensor | None = None) -> Tensor:
        """Embed tokens [B, T]."""
        return torch.cat([super().forward(tokens, dropout), self.marks[self.in_vocabulary(tokens)]], dim=-1)


class CountingEncoder(BagEncoder):
    """Encoder that counts the batches of training in a buffer."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.register_buffer("batches", torch.tensor(0))

    def forward(self, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
        """Encode [B, S, E]."""
        self.batches += 1
        return super().forward(embedded, lengths, mask)


class WideDot(Dot):
    """Dot products of queries and keys through a matrix for each side."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.query_map = nn.Linear(self.query_size, 64)
        self.key_map = nn.Linear(self.memory_size, 64)

    def project_keys(self, states: Tensor) -> Tensor:
        """Return the keys [B, S, 64]."""
        keys: Tensor = self.key_map(states)
        return keys

    def score(self, query: Tensor, keys: Tensor, state: Any) -> Tensor:
        """Return the scores [B, Q, S]."""
        return super().score(self.query_map(query), keys, state)
