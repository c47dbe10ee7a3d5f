"""Transformer decoder: layers of self-attention and attention to the memory, normalised before each part."""

from copy import deepcopy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnlab.nn.attention import Attention
from attnlab.nn.attention.per_layer import PerLayer
from attnlab.nn.cells import CellState, StateShape
from attnlab.nn.decoders.base import Decoder, DecoderOutput, attend_positions
from attnlab.nn.dropout import Dropout
from attnlab.nn.positions import Kind, Positions, make_positions
from attnlab.nn.transformer import Cache, FeedForward, SelfAttention, input_map
from attnlab.settings import Fraction, Positive, Size
from attnlab.types import Memory


class LayerState(NamedTuple):
    """State of a layer between two target positions, P of which are processed."""

    cache: Cache  # keys and values of the self-attention, each [B, Q, N, P, d]
    attention: Any  # state of the attention to the memory, or None


class TransformerState(NamedTuple):
    """State between two target positions."""

    layers: tuple[LayerState, ...]
    start: Tensor  # [B, Q, H]: added to the next input; the bridge's state, and after that 0


class DecoderLayer(nn.Module):
    """Pre-norm layer: self-attention, attention to the memory and a feed-forward network.

    ::

        x ← x + self_attend(LN(x))
        x ← x + W attend(LN(x), memory)       W only if the context's size is not H
        x ← x + feed_forward(LN(x))
    """

    def __init__(self, *, size: int, heads: int, expansion: float, dropout: float, context_size: int) -> None:
        super().__init__()
        self.self_attention = SelfAttention(size=size, heads=heads)
        self.feed_forward = FeedForward(size=size, expansion=expansion)
        self.self_attention_norm = nn.LayerNorm(size)
        self.attention_norm = nn.LayerNorm(size)
        self.feed_forward_norm = nn.LayerNorm(size)
        self.context: nn.Module = nn.ConstantPad1d((0, size), 0.0)  # [..., 0] to zeros [..., H]
        if context_size > 0:
            self.context = (
                nn.Identity() if context_size == size else nn.Linear(context_size, size, bias=False)
            )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        state: LayerState,
        positions: Positions,
        allowed: Tensor | None,
        *,
        attention: Attention,
        memory: Memory,
        keys: Tensor,
    ) -> tuple[Tensor, Tensor, LayerState]:
        """Process T tokens of each of Q hypotheses per sentence, where Q or T is 1, after P tokens.

        Args:
            x: [B Q, T, H].
            positions: of the self-attention.
            allowed: True where the self-attention may look, [T, P + T]; None: everywhere.
            attention: mechanism that reads the memory.

        Returns:
            [B Q, T, H], weights of the attention to the memory [B, Q T, S], and the state after P + T tokens.
        """
        B, (_, T, H) = len(memory.mask), x.shape
        earlier = (state.cache[0].flatten(0, 1), state.cache[1].flatten(0, 1))  # each [B Q, N, P, d]
        attended, cache = self.self_attention(self.self_attention_norm(x), positions, allowed, earlier)
        x = x + self.dropout(attended)
        queries = self.attention_norm(x).view(B, -1, H)  # [B, Q T, H]
        contexts, weights, inner = attend_positions(
            attention, queries, memory, keys, state.attention, positions=T
        )
        x = x + self.dropout(self.context(contexts)).view(x.shape)
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        first, second = (part.unflatten(0, (B, -1)) for part in cache)  # each [B, Q, N, P + T, d]
        return x, weights, LayerState((first, second), inner)


class TransformerDecoder(Decoder):
    """Transformer decoder with normalisation before each part (pre-norm).

    Vaswani et al. 2017 (arXiv 1706.03762), section 3.1; pre-norm as in Xiong et al. 2020 (arXiv 2002.04745),
    with a last layer normalisation. Every layer has its own copy of the mechanism `attention`, which reads
    the memory; `MultiHead` with scaled dot products is that of the paper.

    The contexts are part of the states, so that the readout gets the states alone: `contexts` has width 0.
    The weights are those of one layer, or the mean over the layers. The bridge's initial state is added to
    the embedding of SOS; with `ZeroBridge` this is the decoder of the paper.

    Args:
        layers: L, the number of layers.
        heads: N of the self-attention, a divisor of H.
        expansion: width of the feed-forward networks as a multiple of H.
        dropout: dropout probability of the output of each sublayer.
        weights_layer: layer whose attention weights are returned, from 1; None for their mean over layers.
    """

    def __init__(
        self,
        *,
        input_size: int,
        attention: Attention,
        size: Size,
        layers: Size = 2,
        heads: Size = 4,
        expansion: Positive = 4,
        dropout: Fraction = 0.0,
        positions: Kind = "sinusoidal",
        max_positions: Size = 256,
        weights_layer: Size | None = None,
    ) -> None:
        super().__init__(
            attention=PerLayer([attention, *(deepcopy(attention) for _ in range(layers - 1))]),
            output_size=size,
            state_shape=StateShape(size, layers=1, states_per_layer=1),
        )
        if weights_layer is not None and not 1 <= weights_layer <= layers:
            raise ValueError(f"decoder.weights_layer={weights_layer} must be in [1, {layers}] or null")
        self.shown = slice(None) if weights_layer is None else slice(weights_layer - 1, weights_layer)
        self.input = input_map(input_size, size)
        self.positions = make_positions(positions, size=size, heads=heads, max_positions=max_positions)
        widths: dict[str, Any] = {"size": size, "heads": heads, "expansion": expansion}
        self.blocks = nn.ModuleList(
            DecoderLayer(**widths, dropout=dropout, context_size=attention.context_size)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(size)
        self.cache_shape = (heads, 0, size // heads)  # [N, P, d] before the first token

    @property
    def context_size(self) -> int:
        return 0

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> TransformerState:
        ((start,),) = layers
        empty = start.new_empty(*start.shape[:2], *self.cache_shape)  # [B, 1, N, 0, d]
        return TransformerState(
            tuple(LayerState((empty, empty), inner) for inner in self.attention.begin(memory)), start
        )

    def step(
        self, inputs: Tensor, state: TransformerState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, TransformerState]:
        return self._process(inputs, state, memory, keys, positions=1)

    def forward(
        self, embedded: Tensor, state: TransformerState, memory: Memory, keys: Tensor
    ) -> DecoderOutput:
        return self._process(embedded, state, memory, keys, positions=embedded.size(1))[0]

    def _process(
        self, embedded: Tensor, state: TransformerState, memory: Memory, keys: Tensor, *, positions: int
    ) -> tuple[DecoderOutput, TransformerState]:
        """Process T = `positions` tokens of each of Q hypotheses, [B, Q T, E], where Q or T is 1."""
        assert isinstance(self.attention, PerLayer)
        B, H = len(embedded), self.output_size
        done = state.layers[0].cache[0].size(3)  # P
        x = self.input(embedded).view(-1, positions, H)  # [B Q, T, H]
        x = x + F.pad(state.start.reshape(-1, 1, H), (0, 0, 0, positions - 1))
        x = self.positions.add(x, done)  # [B Q, T, H]
        allowed = None  # a single token may attend to all before it
        if positions > 1:
            allowed = x.new_ones(positions, done + positions, dtype=torch.bool).tril(done)  # [T, P + T]
        weights, layers = [], []
        for block, attention, layer_keys, layer in zip(
            self.blocks, self.attention.mechanisms, keys.unbind(1), state.layers, strict=True
        ):
            x, layer_weights, after = block(
                x, layer, self.positions, allowed, attention=attention, memory=memory, keys=layer_keys
            )
            weights.append(layer_weights)
            layers.append(after)
        tops = self.norm(x).view(B, -1, H)  # [B, Q T, H]
        shown = torch.stack(weights[self.shown]).mean(dim=0)  # [B, Q T, S]
        state = TransformerState(tuple(layers), torch.zeros_like(state.start))
        return DecoderOutput(tops, tops[..., :0], shown), state
