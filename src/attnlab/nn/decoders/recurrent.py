"""Decoders, one for each order in which attending and stepping can go.

All have the same moves: `begin` makes the state before the first token, `step` takes one token further (what
search uses), and `forward` runs over a whole target whose tokens are known (teacher forcing). `forward` and
`step` are the same arithmetic; `forward` only takes out of the loop what does not wait for it, and leaves the
loop to `nn.recurrence` where the attention's scores are of a kind that is written by hand there. `reading` is
for targets whose tokens depend on what was read (scheduled sampling).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.nn.attention import Attention
from attnlab.nn.attention.baselines import is_constant
from attnlab.nn.cells import Cells, CellStack, CellState, Kind, read
from attnlab.nn.decoders.unroll import DecoderOutput, DecoderState, Reading, ReadingByHand
from attnlab.nn.fused import tanh
from attnlab.nn.fused.linear import Linear, linear
from attnlab.nn.fused.scores import fused_scores
from attnlab.types import Memory


class BahdanauDecoder(nn.Module):
    """Bahdanau's order: attend with the state before, then step.

    ::

        c_i = _attend(s_{i-1})
        s_i = f(s_{i-1}, [y_{i-1}; c_i])

    Bahdanau, Cho & Bengio 2014 (arXiv 1409.0473), section 3.1. The query is the top layer's state, the
    context goes into the first layer.

    Args:
        input_size: E.
        attention: made for queries of size H.
        cell: "lstm" or "gru".
        size: H.
        layers: L.
        dropout: on what goes from a layer to the next.
        layer_norm: as in `Cells`.
        recurrent_dropout: as in `Cells`.
    """

    def __init__(
        self,
        *,
        input_size: int,
        attention: Attention,
        cell: Kind = "lstm",
        size: int,
        layers: int = 1,
        dropout: float = 0.0,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.output_size = size
        self.cells = CellStack(
            cell=cell,
            ahead_size=input_size,
            late_size=attention.context_size,
            size=size,
            layers=layers,
            dropout=dropout,
            layer_norm=layer_norm,
            recurrent_dropout=recurrent_dropout,
        )

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        """The state before the first token, from each layer's first state [B, 1, H]."""
        hidden = layers[-1][0]
        dropout = self.cells.draw(layers)
        return DecoderState(layers, hidden[..., :0], self.attention.begin(memory), dropout)

    def step(
        self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        """Read one token [B, Q, E] for each of Q hypotheses a sentence; outputs are [B, Q, …]."""
        return self._advance(self.cells.ahead(embedded), state, memory, keys)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        """Read a whole target [B, T, E]; outputs are [B, T, …]."""
        if is_constant(self.attention):
            contexts, weights, _ = self.attention(state.layers[-1][0], memory, keys)  # [B, 1, …]
            tops = self.cells.read(embedded, contexts, state.layers, state.dropout)  # [B, T, H]
            T = embedded.size(1)
            return DecoderOutput(tops, contexts.expand(-1, T, -1), weights.expand(-1, T, -1))
        reading = self.reading(state, memory, keys, [len(embedded)] * embedded.size(1))
        if isinstance(reading, ReadingByHand):
            return reading.finish(embedded)
        outputs = []
        for ahead in torch.split(self.cells.ahead(embedded), 1, dim=1):  # [B, 1, gates]
            output, state = self._advance(ahead, state, memory, keys)
            outputs.append(output)
        return DecoderOutput(*(torch.cat(parts, dim=1) for parts in zip(*outputs, strict=True)))

    def reading(
        self, state: DecoderState, memory: Memory, keys: Tensor, counts: Sequence[int]
    ) -> Reading | ReadingByHand:
        """To read targets whose tokens are found on the way; of step i those of the first counts[i] alone."""
        scoring = fused_scores(self.attention)
        if scoring is None or is_constant(self.attention) or not self.cells.plain:
            return Reading(self, state, memory, keys)
        return ReadingByHand(self.cells, scoring, state, memory, keys, counts)

    def _advance(
        self, ahead: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        query = state.layers[-1][0]  # [B, Q, H]
        context, weights, attention = self.attention(query, memory, keys, state.attention)
        top, layers = self.cells(ahead, context, state.layers, state.dropout)  # [B, Q, H]
        return DecoderOutput(top, context, weights), state._replace(layers=layers, attention=attention)


class LuongDecoder(nn.Module):
    """Luong's order: step, then attend with the state just reached.

    ::

        s_i = f(s_{i-1}, [y_{i-1}; h̃_{i-1}])     h̃ only with input feeding
        c_i = _attend(s_i)
        h̃_i = tanh(W [c_i; s_i])                 the attentional vector, which the readout sees as the state

    Luong, Pham & Manning 2015 (arXiv 1508.04025), sections 3 and 3.3. Without input feeding the recurrence
    waits for no attention, and a stateless attention answers all target positions in one call.

    Args:
        input_size: E.
        attention: made for queries of size H.
        cell: "lstm" or "gru".
        size: H.
        layers: L.
        dropout: on what goes from a layer to the next.
        layer_norm: as in `Cells`.
        recurrent_dropout: as in `Cells`.
        input_feeding: feed h̃_{i-1} back.
    """

    def __init__(
        self,
        *,
        input_size: int,
        attention: Attention,
        cell: Kind = "lstm",
        size: int,
        layers: int = 1,
        dropout: float = 0.0,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
        input_feeding: bool = True,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.output_size = size
        self.feed_size = size if input_feeding else 0
        self.combine = Linear(attention.context_size + size, size, bias=False)
        self.cells = CellStack(
            cell=cell,
            ahead_size=input_size,
            late_size=self.feed_size,
            size=size,
            layers=layers,
            dropout=dropout,
            layer_norm=layer_norm,
            recurrent_dropout=recurrent_dropout,
        )

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        """The state before the first token, from each layer's first state [B, 1, H]; h̃_0 = 0."""
        hidden = layers[-1][0]
        feed = torch.zeros_like(hidden[..., : self.feed_size])
        return DecoderState(layers, feed, self.attention.begin(memory), self.cells.draw(layers))

    def step(
        self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        """Read one token [B, Q, E] for each of Q hypotheses a sentence; outputs are [B, Q, …]."""
        return self._advance(self.cells.ahead(embedded), state, memory, keys)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        """Read a whole target [B, T, E]; outputs are [B, T, …]."""
        if not self.feed_size:
            tops = self.cells.read(embedded, state.feed, state.layers, state.dropout)  # [B, T, H]
            contexts, weights, _ = _attend(
                self.attention, tops, memory, keys, state.attention, positions=tops.size(1)
            )
            return DecoderOutput(self._combine(contexts, tops), contexts, weights)
        reading = self.reading(state, memory, keys, [len(embedded)] * embedded.size(1))
        if isinstance(reading, ReadingByHand):
            return reading.finish(embedded)
        outputs = []
        for ahead in torch.split(self.cells.ahead(embedded), 1, dim=1):  # [B, 1, gates]
            output, state = self._advance(ahead, state, memory, keys)
            outputs.append(output)
        return DecoderOutput(*(torch.cat(parts, dim=1) for parts in zip(*outputs, strict=True)))

    def reading(
        self, state: DecoderState, memory: Memory, keys: Tensor, counts: Sequence[int]
    ) -> Reading | ReadingByHand:
        """To read targets whose tokens are found on the way; of step i those of the first counts[i] alone."""
        scoring = fused_scores(self.attention)
        if scoring is None or not self.feed_size or not self.cells.plain:
            return Reading(self, state, memory, keys)
        return ReadingByHand(self.cells, scoring, state, memory, keys, counts, self.combine.weight)

    def _advance(
        self, ahead: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        top, layers = self.cells(ahead, state.feed, state.layers, state.dropout)  # [B, Q, H]
        contexts, weights, attention = self.attention(top, memory, keys, state.attention)
        output = DecoderOutput(self._combine(contexts, top), contexts, weights)
        feed = output.states[..., : self.feed_size]
        return output, state._replace(layers=layers, feed=feed, attention=attention)

    def _combine(self, contexts: Tensor, tops: Tensor) -> Tensor:
        return tanh(self.combine(torch.cat([contexts, tops], dim=-1)))  # [B, Q, H]


class GNMTDecoder(nn.Module):
    """GNMT's order: step the first layer, attend with its state, and give the context to all layers above.

    ::

        s¹_i = f¹(s¹_{i-1}, y_{i-1})
        c_i  = _attend(s¹_i)
        sˡ_i = fˡ(sˡ_{i-1}, [sˡ⁻¹_i; c_i])     for l = 2 … L; the readout sees the state of the top

    Wu et al. 2016 (arXiv 1609.08144), section 3, as NVIDIA's implementation has it: with s¹_i as the query
    where the paper has s¹_{i-1}. No layer waits for a context or for a layer above it, so a whole target is
    read a layer at a time: a stateless attention answers all positions in one call, and a layer's product
    with its input is one product for all positions. What is left in the loops is the share of sˡ_{i-1}.

    Args:
        input_size: E.
        attention: made for queries of size H.
        cell: "lstm" or "gru".
        size: H.
        layers: L, at least 2.
        dropout: on what a layer above the first reads, [sˡ⁻¹_i; c_i].
        layer_norm: as in `Cells`.
        recurrent_dropout: as in `Cells`.
        residual: add sˡ⁻¹_i to what layer l = 3 … L hands on.

    Raises:
        ValueError: if L < 2, where no layer would see a context.
    """

    def __init__(
        self,
        *,
        input_size: int,
        attention: Attention,
        cell: Kind = "lstm",
        size: int,
        layers: int = 2,
        dropout: float = 0.0,
        layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
        residual: bool = False,
    ) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError(
                f"GNMT's order gives the context to layers 2 and up, and decoder.layers is {layers}: "
                "set decoder.layers=2 or use decoder=luong"
            )
        self.attention = attention
        self.output_size = size
        widths = [input_size, *[size + attention.context_size] * (layers - 1)]
        self.cells = Cells(
            cell=cell, widths=widths, size=size, layer_norm=layer_norm, recurrent_dropout=recurrent_dropout
        )
        self.dropout = nn.Dropout(dropout)
        self.residual = residual

    def begin(self, layers: tuple[CellState, ...], memory: Memory) -> DecoderState:
        """The state before the first token, from each layer's first state [B, 1, H]."""
        hidden = layers[-1][0]
        dropout = self.cells.draw(layers)
        return DecoderState(layers, hidden[..., :0], self.attention.begin(memory), dropout)

    def step(
        self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor
    ) -> tuple[DecoderOutput, DecoderState]:
        """Read one token [B, Q, E] for each of Q hypotheses a sentence; outputs are [B, Q, …]."""
        return self._read(embedded, state, memory, keys, positions=1)

    def forward(self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor) -> DecoderOutput:
        """Read a whole target [B, T, E]; outputs are [B, T, …]."""
        output, _ = self._read(embedded, state, memory, keys, positions=embedded.size(1))
        return output

    def reading(
        self, state: DecoderState, memory: Memory, keys: Tensor, counts: Sequence[int]
    ) -> Reading | ReadingByHand:
        """To read targets whose tokens are found on the way; of step i those of the first counts[i] alone."""
        return Reading(self, state, memory, keys)

    def _read(
        self, embedded: Tensor, state: DecoderState, memory: Memory, keys: Tensor, positions: int
    ) -> tuple[DecoderOutput, DecoderState]:
        """Read target positions that lie one after the other along axis 1, or one for many hypotheses."""
        tops, first = self._recur(0, embedded, state, positions)  # [B, Q, H]
        layers = [first]
        contexts, weights, attention = _attend(
            self.attention, tops, memory, keys, state.attention, positions=positions
        )
        for layer in range(1, len(self.cells)):
            inputs = self.dropout(torch.cat([tops, contexts], dim=-1))  # [B, Q, H + D]
            outputs, last = self._recur(layer, inputs, state, positions)  # [B, Q, H]
            layers.append(last)
            tops = outputs + tops if self.residual and layer > 1 else outputs
        state = state._replace(layers=tuple(layers), attention=attention)
        return DecoderOutput(tops, contexts, weights), state

    def _recur(
        self, layer: int, inputs: Tensor, state: DecoderState, positions: int
    ) -> tuple[Tensor, CellState]:
        """A layer's outputs [B, Q, H] for its inputs [B, Q, I], and its last state."""
        cell: Any = self.cells[layer]
        gates = linear(inputs, cell.weight_ih, cell.bias_ih)  # [B, Q, gates]
        recurrence = self.cells.recurrence(layer, state.dropout)
        if positions > 1:
            return read(recurrence, gates, state.layers[layer])
        last = recurrence.advance(gates, state.layers[layer])
        return last[0], last


def _attend(
    attention: Attention, queries: Tensor, memory: Memory, keys: Tensor, state: Any, *, positions: int
) -> tuple[Tensor, Tensor, Any]:
    """Attend with queries [B, Q, H], one after the other along axis 1 or many at one position."""
    if not attention.stateful:
        return attention(queries, memory, keys, state)  # type: ignore[no-any-return]
    contexts, weights = [], []
    for query in queries.chunk(positions, dim=1):
        context, weight, state = attention(query, memory, keys, state)
        contexts.append(context)
        weights.append(weight)
    return torch.cat(contexts, dim=1), torch.cat(weights, dim=1), state


Decoder = BahdanauDecoder | LuongDecoder | GNMTDecoder
