"""What a decoder hands from token to token, and how a target is read whose tokens are found on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from attnlab.nn.cells import CellStack, CellState
from attnlab.nn.fused import Loop, Rows, Scores, Weights
from attnlab.nn.fused.linear import linear
from attnlab.types import Memory


class DecoderState(NamedTuple):
    """What one target position hands to the next; every tensor begins with [B, Q]."""

    layers: tuple[CellState, ...]
    feed: Tensor  # [B, Q, F]: the attentional vector fed back, of width 0 where none is
    attention: Any  # the attention's own state, or None
    dropout: tuple[Tensor, ...] = ()  # what each layer's state is multiplied by where it is read back


class DecoderOutput(NamedTuple):
    """What the readout sees of each target position."""

    states: Tensor  # [B, T, H]
    contexts: Tensor  # [B, T, D], of width 0 without attention
    weights: Tensor  # [B, T, S]


class Decoding(Protocol):
    """What a decoder does: read a token, or a whole target."""

    def step(
        self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        """One token [B, Q, E] for each of Q hypotheses a sentence; outputs are [B, Q, …]."""
        ...

    def __call__(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        """A whole target [B, T, E]; outputs are [B, T, …]."""
        ...


class Reading:
    """A whole target to be read, whose tokens are found on the way: `step` as far as needed, then `finish`.

    Args:
        decoder: that reads.
        state: before the first token.
        memory: the sources'.
        keys: the sources'.
    """

    def __init__(self, decoder: Decoding, state: DecoderState, memory: Memory, keys: Tensor) -> None:
        self.decoder = decoder
        self.state = state
        self.sources = memory, keys
        self.reached = state

    @torch.no_grad()
    def step(self, embedded: Tensor) -> DecoderOutput:
        """Read one token [B, 1, E]; no gradient comes back from the output [B, 1, …]."""
        output, self.reached = self.decoder.step(embedded, self.reached, *self.sources)
        return output

    def finish(self, embedded: Tensor) -> DecoderOutput:
        """Read the whole target [B, T, E], its first tokens those that were read by `step`."""
        return self.decoder(embedded, self.state, *self.sources)


class ReadingByHand:
    """As `Reading`, by the loop whose way back is written by hand: no step is taken twice.

    Args:
        cells: without layer normalisation and recurrent dropout.
        scoring: the attention's.
        state: before the first token.
        memory: the sources'.
        keys: the sources'.
        counts: of each of T steps, the sentences that it reads: the first so many.
        combine: W [H, D + H] of an attentional vector that is fed back.
    """

    def __init__(
        self,
        cells: CellStack,
        scoring: Scores,
        state: DecoderState,
        memory: Memory,
        keys: Tensor,
        counts: Sequence[int],
        combine: Tensor | None = None,
    ) -> None:
        layers = [Weights(c.weight_ih, c.bias_ih, c.weight_hh, c.bias_hh) for c in cells.cells]  # type: ignore[arg-type]
        first = layers[0]
        widths = [cells.ahead_size, first.input.size(1) - cells.ahead_size]
        self.weight, late_weight = torch.split(first.input, widths, dim=1)  # whose way back is a single copy
        self.bias = first.input_bias
        layers[0] = first._replace(input=late_weight, input_bias=None)
        self.rows = Rows(counts, len(keys))
        ones = keys.new_ones(len(layers) - 1, self.rows.total, cells.size)  # [L - 1, N, H]
        self.loop = Loop(
            cells.cells.kind,
            layers,
            [tuple(part[:, 0] for part in layer) for layer in state.layers],
            scoring,
            memory.states,
            keys,
            memory.mask,
            self.rows,
            combine=combine,
            dropout=cells.dropout(ones).unbind() if cells.training and cells.dropout.p > 0 else (),
        )

    @torch.no_grad()
    def step(self, embedded: Tensor) -> DecoderOutput:
        """Read one token [B, 1, E]; no gradient comes back from the output, of those that go on [n, 1, …]."""
        parts = self.loop.step(linear(embedded[:, 0], self.weight, self.bias))
        return DecoderOutput(*(part[:, None] for part in parts))

    def finish(self, embedded: Tensor) -> DecoderOutput:
        """Read the whole target [B, T, E], its first tokens those that were read by `step`."""
        ahead = linear(self.rows.pack(embedded.transpose(0, 1)), self.weight, self.bias)  # [N, gates]
        return DecoderOutput(*(part.transpose(0, 1) for part in self.loop.finish(ahead)))
