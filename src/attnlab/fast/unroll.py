"""Unroll of a recurrent decoder by the fused loop."""

import torch
from torch import Tensor

from attnlab.fast.layer import FusedRecurrence
from attnlab.fast.linear import Products
from attnlab.fast.loop import DecoderLoop
from attnlab.fast.rows import Rows, active_counts
from attnlab.fast.stack import Weights
from attnlab.fast.support import fused_scores
from attnlab.nn.cells import Cells
from attnlab.nn.decoders import BahdanauDecoder, Decoder, LuongDecoder, Unroll
from attnlab.nn.decoders.base import DecoderOutput, DecoderState
from attnlab.types import Memory


class FusedUnroll(Unroll):
    """Unroll by the fused loop: no step is computed twice, and padding is skipped.

    Args:
        labels: [B, T] int64, PAD where there is nothing to predict.
        products: of the network.
    """

    def __init__(
        self,
        decoder: Decoder,
        state: DecoderState,
        memory: Memory,
        keys: Tensor,
        labels: Tensor,
        products: Products,
    ) -> None:
        assert isinstance(decoder, BahdanauDecoder | LuongDecoder)
        cells = decoder.cells
        self.products = products
        layers = [_weights(cells.cells, layer, state.dropout) for layer in range(len(cells.cells))]
        first = layers[0]
        widths = [cells.input_size, first.input.size(1) - cells.input_size]
        # the backward pass of a split is a single copy
        self.weight, feed_weight = torch.split(first.input, widths, dim=1)
        self.bias = first.input_bias
        layers[0] = first._replace(input=feed_weight, input_bias=None)
        self.rows = Rows(active_counts(labels), len(keys))
        ones = keys.new_ones(len(layers) - 1, self.rows.total, cells.size)  # [L - 1, N, H]
        self.loop = DecoderLoop(
            cells.cells.kind,
            layers,
            [tuple(part[:, 0] for part in layer) for layer in state.layers],
            fused_scores(decoder.attention),
            memory.states,
            keys,
            memory.mask,
            self.rows,
            combine=decoder.combine.weight if isinstance(decoder, LuongDecoder) else None,
            dropout=cells.dropout(ones).unbind() if cells.training and cells.dropout.p > 0 else (),
        )

    @torch.no_grad()
    def step(self, embedded: Tensor) -> DecoderOutput:
        """Process one token [B, 1, E] without gradients; return [n, 1, …] of the first n sentences.

        The other sentences have no label at this step or later.
        """
        parts = self.loop.step(self.products.linear(embedded[:, 0], self.weight, self.bias))
        return DecoderOutput(*(part[:, None] for part in parts))

    def finish(self, embedded: Tensor) -> DecoderOutput:
        rows = self.rows.pack(embedded.transpose(0, 1))  # [N, E]
        gates = self.products.linear(rows, self.weight, self.bias)  # [N, gates]
        return DecoderOutput(*(part.transpose(0, 1) for part in self.loop.finish(gates)))


class ConstantUnroll(Unroll):
    """Unroll in Bahdanau's order with the same context at all positions: see `is_constant`."""

    def finish(self, embedded: Tensor) -> DecoderOutput:
        decoder, state = self.decoder, self.first
        assert isinstance(decoder, BahdanauDecoder)
        contexts, weights, _ = decoder.attention(
            state.layers[-1][0], self.memory, self.keys, None
        )  # [B, 1, …]
        tops = decoder.cells.unroll(embedded, contexts, state.layers, state.dropout)  # [B, T, H]
        T = embedded.size(1)
        return DecoderOutput(tops, contexts.expand(-1, T, -1), weights.expand(-1, T, -1))


def _weights(cells: Cells, layer: int, dropout: tuple[Tensor, ...]) -> Weights:
    """Return the parameters of one layer, given the recurrent dropout of all layers, [B, 1, H]."""
    recurrence = cells.recurrence(layer, dropout)
    assert isinstance(recurrence, FusedRecurrence)
    state, norms = recurrence.parameters, recurrence.norms
    if state.dropout is not None:
        state = state._replace(dropout=state.dropout[:, 0])  # [B, H]
    gain, shift = (None, None) if norms is None else (norms.input.weight, norms.input.bias)
    return Weights(recurrence.input_weight, recurrence.input_bias, gain, shift, state)
