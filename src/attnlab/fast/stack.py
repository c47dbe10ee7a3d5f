"""The layers of a decoder inside its loop, with their backward pass, and the arguments of the loop."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.fast.attend import Scores
from attnlab.fast.cells import widest
from attnlab.fast.layer import LayerBackward, LayerForward, StateParameters
from attnlab.fast.linear import outer, prepack
from attnlab.fast.norm import NormBackward, NormForward
from attnlab.fast.rows import Rows

SAVED = 14
"""Buffers for the backward pass of a layer: the outputs, 3 of LN(W x + b), and 10 of `LayerForward`."""


def dropped(values: Tensor, factors: Tensor) -> Tensor:
    """Multiply values [N, H] by dropout factors of another dtype; the result has the dtype of the values."""
    return (values * factors).to(values.dtype)


class Weights(NamedTuple):
    """Parameters of one layer of the decoder."""

    input: Tensor  # W [gates, …]; of the first layer, the columns of its feed u
    input_bias: Tensor | None  # b [gates]; None for the first layer, whose input gates include it
    gain: Tensor | None  # γ of LN(W x + b), [gates]; None without layer normalisation
    shift: Tensor | None  # its β
    state: StateParameters


class Options(NamedTuple):
    """Non-tensor arguments of the loop."""

    kind: str
    layers: int
    states: int  # 2 for LSTM (h and c), 1 for GRU
    temperature: float
    rows: Rows
    save: bool  # save the tensors for the backward pass


class Inputs(NamedTuple):
    """Tensor arguments of the loop, with or without gradients."""

    memory: Tensor
    keys: Tensor
    mask: Tensor
    energy: Tensor | None
    query: Tensor | None
    query_bias: Tensor | None
    location: Tensor | None
    combine: Tensor | None
    layers: list[Weights]
    state: list[tuple[Tensor, ...]]
    dropout: list[Tensor]

    def scores(self, temperature: float) -> Scores:
        """Return the parameters of the attention's scores."""
        return Scores(temperature, self.energy, self.query, self.query_bias, self.location)


def name_inputs(options: Options, tensors: Sequence[Any]) -> Inputs:
    """Name the tensors that `DecoderLoop` puts into one list."""
    memory, keys, mask, energy, query, query_bias, location, combine, *rest = tensors
    layers = []
    for _ in range(options.layers):
        weight, bias, gain, shift, *rest = rest
        layers.append(Weights(weight, bias, gain, shift, StateParameters(*rest[:7])))
        rest = rest[7:]
    state = [tuple(rest[options.states * layer :][: options.states]) for layer in range(options.layers)]
    dropout = rest[options.states * options.layers :]
    attention = memory, keys, mask, energy, query, query_bias, location
    return Inputs(*attention, combine, layers, state, dropout)


class StackForward:
    """Forward pass of the layers."""

    def __init__(self, options: Options, inputs: Inputs, dtype: torch.dtype) -> None:
        self.rows = options.rows
        self.dropout = inputs.dropout
        self.products = [prepack(layer.input, layer.input_bias, dtype) for layer in inputs.layers]
        self.layers = [
            LayerForward(options.kind, layer.state, state, options.rows.total, dtype, save=options.save)
            for layer, state in zip(inputs.layers, inputs.state, strict=True)
        ]
        rows = options.rows.total if options.save else 0
        self.norms = [NormForward.of(layer.gain, layer.shift, rows, widest(dtype)) for layer in inputs.layers]

    @property
    def saved(self) -> list[Tensor | None]:
        """Buffers [N, …] that `StackBackward` needs, `SAVED` of each layer."""
        saved: list[Tensor | None] = []
        for layer, norm in zip(self.layers, self.norms, strict=True):
            saved += [layer.outputs, *(norm.saved if norm else [None] * 3), *layer.saved]
        return saved

    def step(self, i: int, gates: Tensor, feed: Tensor) -> Tensor:
        """Return the top layer's h [n, H], given the input gates [n, gates] and the feed u [n, …]."""
        rows = self.rows.slices[i]
        gates = torch.add(self.products[0](feed), gates)  # in fp32 or wider, as the input gates are
        output = self._update(0, rows, gates)  # [n, H]
        for number in range(1, len(self.layers)):
            below = dropped(output, self.dropout[number - 1][rows]) if self.dropout else output  # [n, H]
            output = self._update(number, rows, self.products[number](below))
        return output

    def _update(self, number: int, rows: slice, gates: Tensor) -> Tensor:
        """Return the new h [n, H] of one layer, given its W x + b [n, gates]."""
        norm = self.norms[number]
        return self.layers[number].step(rows, gates if norm is None else norm.step(rows, gates))


class StackBackward:
    """Backward pass of the layers."""

    def __init__(self, options: Options, inputs: Inputs, saved: Sequence[Tensor]) -> None:
        self.rows = options.rows
        self.dropout = inputs.dropout
        parts = [saved[start : start + SAVED] for start in range(0, len(saved), SAVED)]
        self.outputs = [part[0] for part in parts]
        self.norms = [
            NormBackward.of(layer.gain, layer.shift, part[1:4])
            for layer, part in zip(inputs.layers, parts, strict=True)
        ]
        zeros = [None] * options.states
        shape = (options.rows.batch, self.outputs[0].size(1))
        self.layers = [
            LayerBackward(options.kind, layer.state, part[4:], zeros, shape)
            for layer, part in zip(inputs.layers, parts, strict=True)
        ]
        dtype = self.outputs[0].dtype
        self.products = [prepack(layer.input.T, None, dtype) for layer in inputs.layers]
        self.d_inputs = [  # of W x + b, [N, gates]
            layer.d_input if norm is None else torch.empty_like(layer.d_input, dtype=dtype)
            for layer, norm in zip(self.layers, self.norms, strict=True)
        ]

    def step(self, i: int, d_top: Tensor | None) -> Tensor:
        """Go back one step, from the gradient of the top layer's h [n, H] to that of the feed u [n, …]."""
        rows = self.rows.slices[i]
        d_output = d_top
        for number in range(len(self.layers) - 1, -1, -1):
            layer, norm = self.layers[number], self.norms[number]
            if d_output is not None:
                layer.d_state[0][: len(d_output)].add_(d_output)
            d_input = layer.step(rows)  # [n, gates]
            if norm is not None:
                d_input = self.d_inputs[number][rows].copy_(norm.step(rows, d_input))
            d_output = self.products[number](d_input)  # [n, H], or [n, …] of the feed
            if number > 0 and self.dropout:
                d_output = dropped(d_output, self.dropout[number - 1][rows])
        assert d_output is not None
        return d_output

    def weights(self, inputs: Inputs, feed: Tensor) -> list[Tensor | None]:
        """Return the gradients of all layers' weights, given the feed of every step [N, …]."""
        gradients: list[Tensor | None] = []
        below = feed
        for number, (layer, weights) in enumerate(zip(self.layers, inputs.layers, strict=True)):
            d_input, norm = self.d_inputs[number], self.norms[number]
            bias = None if weights.input_bias is None else d_input.sum(dim=0, dtype=layer.gates.dtype)
            d_norm = (None, None) if norm is None else norm.parameters(layer.d_input)
            gradients += [outer(d_input, below), bias, *d_norm, *layer.parameters()]
            below = self.outputs[number]  # [N, H]
            if number < len(self.dropout):
                below = dropped(below, self.dropout[number])
        return gradients
