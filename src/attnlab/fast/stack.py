"""The layers of a decoder inside its loop, with their backward pass, and the arguments of the loop."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.fast.attend import Attended
from attnlab.fast.cells import widest
from attnlab.fast.layer import LayerBackward, LayerForward, StateParameters
from attnlab.fast.linear import outer, prepack
from attnlab.fast.norm import Norm
from attnlab.fast.rows import Rows


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
    temperature: float
    rows: Rows
    save: bool  # save the tensors for the backward pass


class Inputs(NamedTuple):
    """Tensor arguments of the loop, with or without gradients."""

    attended: Attended
    combine: Tensor | None  # W [H, D + H] of h̃ in Luong's order; None in Bahdanau's order
    layers: Sequence[Weights]
    state: Sequence[Sequence[Tensor]]  # initial h (and c) of each layer, [B, H]
    dropout: Sequence[Tensor]  # of the input of each layer above the first, [N, H]; empty without dropout


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
        self.norms = [Norm.begin(layer.gain, layer.shift, rows, widest(dtype)) for layer in inputs.layers]

    @property
    def saved(self) -> list[Any]:
        """What `StackBackward` needs of each layer: outputs [N, H] and buffers, a tree."""
        layers = zip(self.layers, self.norms, strict=True)
        return [(layer.outputs, norm and norm.saved, layer.saved) for layer, norm in layers]

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
        return self.layers[number].step(rows, gates if norm is None else norm.forward(rows, gates))


class StackBackward:
    """Backward pass of the layers."""

    def __init__(self, options: Options, inputs: Inputs, saved: Sequence[Any]) -> None:
        self.rows = options.rows
        self.dropout = inputs.dropout
        self.outputs = [outputs for outputs, _, _ in saved]  # each [N, H]
        self.norms, self.layers = [], []
        shape = (options.rows.batch, self.outputs[0].size(1))
        zeros = [None] * len(inputs.state[0])
        for weights, (_, norm, layer) in zip(inputs.layers, saved, strict=True):
            self.norms.append(Norm.resume(weights.gain, weights.shift, norm))
            self.layers.append(LayerBackward(options.kind, weights.state, layer, zeros, shape))
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
                d_input = self.d_inputs[number][rows].copy_(norm.backward(rows, d_input))
            d_output = self.products[number](d_input)  # [n, H], or [n, …] of the feed
            if number > 0 and self.dropout:
                d_output = dropped(d_output, self.dropout[number - 1][rows])
        assert d_output is not None
        return d_output

    def weights(self, inputs: Inputs, feed: Tensor) -> list[Any]:
        """Return the gradients of all layers' `Weights`, given the feed of every step [N, …]."""
        gradients = []
        below = feed
        for number, (layer, weights) in enumerate(zip(self.layers, inputs.layers, strict=True)):
            d_input, norm = self.d_inputs[number], self.norms[number]
            bias = None if weights.input_bias is None else d_input.sum(dim=0, dtype=layer.gates.dtype)
            d_norm = (None, None) if norm is None else norm.parameters(layer.d_input)
            gradients.append((outer(d_input, below), bias, *d_norm, layer.parameters()))
            below = self.outputs[number]  # [N, H]
            if number < len(self.dropout):
                below = dropped(below, self.dropout[number])
        return gradients
