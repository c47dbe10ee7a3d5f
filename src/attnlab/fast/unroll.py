"""Unrolls of recurrent decoders without a graph of their steps, and which decoders they support."""

from typing import Any

import torch
from torch import Tensor, nn

from attnlab.fast import attend
from attnlab.fast.attend import Attended
from attnlab.fast.function import run
from attnlab.fast.layer import Cells, CellStack, FusedRecurrence
from attnlab.fast.linear import Linear, Products
from attnlab.fast.loop import Loop, LoopForward
from attnlab.fast.rows import Rows
from attnlab.fast.stack import Inputs, Options, Weights
from attnlab.nn.attention import Additive, Attention, Dot, General, LocationSensitive, ScaledDot
from attnlab.nn.attention.baselines import Final, Mean, NoAttention
from attnlab.nn.attention.normalisers import Entmax
from attnlab.nn.cells import Norms
from attnlab.nn.decoders import BahdanauDecoder, Decoder, LuongDecoder, Unroll
from attnlab.nn.decoders.base import DecoderOutput, DecoderState
from attnlab.types import Memory

PARTS = {
    *(BahdanauDecoder, LuongDecoder, CellStack, Cells, nn.LSTMCell, nn.GRUCell, Norms, nn.LayerNorm),
    *(Additive, attend.Concat, Dot, General, LocationSensitive, ScaledDot),
    *(attend.Energy, Linear, nn.Conv1d, nn.Identity),
}
"""Classes that the loop replaces; any dropout is called. A subclass may compute something else."""


def unsupported(decoder: Decoder) -> str | None:
    """Return why the fused loop does not support a decoder, or None if it does."""
    other = (part for part in decoder.modules() if type(part) not in PARTS)
    if part := next((part for part in other if not isinstance(part, nn.Dropout)), None):
        return f"no fused {type(part).__name__}"
    if isinstance(decoder, LuongDecoder) and not decoder.input_feeding:
        return "no input feeding"
    normaliser = decoder.attention.normaliser
    if type(normaliser) is not Entmax or normaliser.alpha != 1:
        return "no fused normaliser but softmax"
    return None


def is_constant(decoder: Decoder) -> bool:
    """Return whether a decoder in Bahdanau's order has the same context and weights at all positions.

    Its layers can then be computed one after the other.
    """
    return type(decoder) is BahdanauDecoder and type(decoder.attention) in (NoAttention, Mean, Final)


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
        stack: Any = decoder.cells
        self.products = products
        self.rows = Rows.of(labels)
        first, *above = (_weights(stack.cells, layer, state.dropout) for layer in range(len(stack.cells)))
        # The backward pass of a split is a single copy
        widths = [stack.input_size, first.input.size(1) - stack.input_size]
        self.weight, feed_weight = torch.split(first.input, widths, dim=1)
        self.bias = first.input_bias
        ones = keys.new_ones(len(above), self.rows.total, stack.size)  # [L - 1, N, H]
        self.inputs = Inputs(
            attended=_attended(decoder.attention, memory, keys),
            combine=decoder.combine.weight if isinstance(decoder, LuongDecoder) else None,
            layers=[first._replace(input=feed_weight, input_bias=None), *above],
            state=[tuple(part[:, 0] for part in layer) for layer in state.layers],
            dropout=stack.dropout(ones).unbind() if stack.training and stack.dropout.p > 0 else (),
        )
        softmax: Any = decoder.attention.normaliser
        self.options = Options(stack.cells.kind, softmax.temperature, self.rows, torch.is_grad_enabled())
        self.begun: LoopForward | None = None

    @torch.no_grad()
    def step(self, embedded: Tensor) -> DecoderOutput:
        """Process one token [B, 1, E] without gradients; return [n, 1, …] of the first n sentences.

        The other sentences have no label at this step or later.
        """
        gates = self.products.linear(embedded[:, 0], self.weight, self.bias)  # [B, gates]
        if self.begun is None:
            self.begun = LoopForward(self.options, self.inputs, gates.dtype)
        return DecoderOutput(*(part[:, None] for part in self.begun.step(gates)))

    def finish(self, embedded: Tensor) -> DecoderOutput:
        rows = self.rows.pack(embedded.transpose(0, 1))  # [N, E]
        gates = self.products.linear(rows, self.weight, self.bias)  # [N, gates]
        outputs = run(Loop(self.options, self.begun), gates, self.inputs)  # each [T, B, …]
        return DecoderOutput(*(part.transpose(0, 1) for part in outputs))


class ConstantUnroll(Unroll):
    """Unroll in Bahdanau's order with the same context at all positions: see `is_constant`."""

    def finish(self, embedded: Tensor) -> DecoderOutput:
        decoder, state = self.decoder, self.first
        assert isinstance(decoder, BahdanauDecoder)
        query = state.layers[-1][0]  # [B, 1, H]
        contexts, weights, _ = decoder.attention(query, self.memory, self.keys, None)  # [B, 1, …]
        tops = decoder.cells.unroll(embedded, contexts, state.layers, state.dropout)  # [B, T, H]
        T = embedded.size(1)
        return DecoderOutput(tops, contexts.expand(-1, T, -1), weights.expand(-1, T, -1))


def _attended(attention: Attention, memory: Memory, keys: Tensor) -> Attended:
    """Return what is attended to, with the parameters of the scores of a supported mechanism."""
    attended = Attended(memory.states, keys, memory.mask)  # ScaledDot scales its keys
    if isinstance(attention, Additive):
        query, energy = attention.query, attention.energy.weight[0]  # [A]
        attended = attended._replace(energy=energy, weight=query.weight, bias=query.bias)
    if isinstance(attention, LocationSensitive):
        past = attention.past
        location = past.weight @ attention.convolution.weight[:, 0]  # [A, C] by [C, K]
        return attended._replace(bias=past.bias, location=location)
    if isinstance(attention, attend.Concat):
        weight = attention.pair.weight[:, : attention.query_size]  # the bias is part of the keys
        return attended._replace(energy=attention.energy.weight[0], weight=weight)
    return attended


def _weights(cells: Cells, layer: int, dropout: tuple[Tensor, ...]) -> Weights:
    """Return the parameters of one layer, given the recurrent dropout of all layers, [B, 1, H]."""
    recurrence: FusedRecurrence = cells.recurrence(layer, dropout)
    state, norms = recurrence.parameters, recurrence.norms
    if state.dropout is not None:
        state = state._replace(dropout=state.dropout[:, 0])  # [B, H]
    gain, shift = (None, None) if norms is None else (norms.input.weight, norms.input.bias)
    return Weights(recurrence.input_weight, recurrence.input_bias, gain, shift, state)
