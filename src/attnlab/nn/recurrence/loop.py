"""The attentional loop over a whole target, in Bahdanau's order and in Luong's, and the way back through it.

Every step writes its tensors to buffers of all T steps, in rows i B … (i + 1) B. On the way back a step
computes the gradients of its gates and queries and nothing else: the gradient of a weight is one product over
all T B rows, after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.nn.linear import outer, prepare
from attnlab.nn.recurrence.attend import Attend, AttendBack, Scoring
from attnlab.nn.recurrence.layer import Layer, LayerBack, tanh_, widest


class Weights(NamedTuple):
    """Those of one layer of the decoder."""

    input: Tensor  # W [gates, …]; of the first layer, the columns for the context or for what is fed back
    input_bias: Tensor | None  # b [gates]; None for the first layer, whose b is in the gates known ahead
    state: Tensor  # U [gates, H]
    state_bias: Tensor  # [gates]


class _Plan(NamedTuple):
    """What is no tensor."""

    kind: str
    layers: int
    states: int  # h, and c of an LSTM
    temperature: float
    keep: bool


class _Inputs(NamedTuple):
    """All tensors, with gradients or without."""

    ahead: Tensor
    memory: Tensor
    keys: Tensor
    mask: Tensor
    energy: Tensor | None
    query: Tensor | None
    query_bias: Tensor | None
    combine: Tensor | None
    layers: list[Weights]
    state: list[tuple[Tensor, ...]]
    dropout: list[Tensor]

    @property
    def scoring_tensors(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """As in `Scoring`."""
        return self.energy, self.query, self.query_bias


def attend_and_step(
    kind: str,
    ahead: Tensor,
    layers: Sequence[Weights],
    state: Sequence[Sequence[Tensor]],
    scoring: Scoring,
    memory: Tensor,
    keys: Tensor,
    mask: Tensor,
    *,
    combine: Tensor | None = None,
    dropout: Sequence[Tensor] = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """Read a whole target.

    Args:
        kind: "lstm" or "gru".
        ahead: [T, B, gates]: the first layer's W x + b of the embedded tokens.
        layers: each layer's weights.
        state: each layer's h (and c) to start from, [B, H].
        scoring: how the attention scores.
        memory: [B, S, D].
        keys: [B, S, A].
        mask: [B, S], True at real positions.
        combine: W [H, D + H] of h̃ = tanh(W [c; s]) in Luong's order with input feeding, where h̃ is what the
            first layer reads; None for Bahdanau's order, where it reads the context.
        dropout: for each layer above the first, what its input is multiplied by, [T, B, H]; or nothing.

    Returns:
        States [T, B, H] (h̃ in Luong's order), contexts [T, B, D] and weights [T, B, S].
    """
    plan = _Plan(kind, len(layers), len(state[0]), scoring.temperature, torch.is_grad_enabled())
    tensors = [ahead, memory, keys, mask, scoring.energy, scoring.weight, scoring.bias, combine]
    tensors += [part for layer in layers for part in layer]
    tensors += [part for layer in state for part in layer]
    states, contexts, weights = _Loop.apply(plan, *tensors, *dropout)  # type: ignore[no-untyped-call]
    return states, contexts, weights


def _inputs(plan: _Plan, tensors: Sequence[Any]) -> _Inputs:
    """The tensors by name, as `attend_and_step` put them one after the other."""
    ahead, memory, keys, mask, energy, query, query_bias, combine, *rest = tensors
    layers = [Weights(*rest[4 * layer : 4 * layer + 4]) for layer in range(plan.layers)]
    rest = rest[4 * plan.layers :]
    state = [tuple(rest[plan.states * layer :][: plan.states]) for layer in range(plan.layers)]
    dropout = rest[plan.states * plan.layers :]
    return _Inputs(ahead, memory, keys, mask, energy, query, query_bias, combine, layers, state, dropout)


class _Stack:
    """The layers, forward."""

    def __init__(self, plan: _Plan, inputs: _Inputs, dtype: torch.dtype) -> None:
        T, self.batch, _ = inputs.ahead.shape
        rows = T * self.batch
        self.ahead = inputs.ahead.flatten(0, 1).to(widest(dtype))  # [T B, gates]
        self.dropout = [mask.flatten(0, 1) for mask in inputs.dropout]
        self.products = [prepare(layer.input, layer.input_bias, dtype) for layer in inputs.layers]
        self.layers = [
            Layer(plan.kind, layer.state, layer.state_bias, state, rows, dtype, keep=plan.keep)
            for layer, state in zip(inputs.layers, inputs.state, strict=True)
        ]

    def step(self, i: int, late: Tensor) -> Tensor:
        """Read a step's context, or what is fed back, [B, …]; returns the top's h [B, H]."""
        rows = slice(i * self.batch, (i + 1) * self.batch)
        gates = self.ahead[rows] + self.products[0](late)
        output = self.layers[0].step(rows, gates)
        for number, layer in enumerate(self.layers[1:]):
            below = output * self.dropout[number][rows] if self.dropout else output
            output = layer.step(rows, self.products[number + 1](below))
        return output


class _StackBack:
    """The way back through the layers."""

    def __init__(self, plan: _Plan, inputs: _Inputs, kept: Sequence[Tensor], d_last: Tensor) -> None:
        self.batch = d_last.size(0)
        self.dropout = [mask.flatten(0, 1) for mask in inputs.dropout]
        self.outputs = kept[2::3]
        nothing = [None] * plan.states
        shape = (self.batch, d_last.size(1))
        self.layers = [
            LayerBack(plan.kind, layer.state, gates, before, nothing, shape)
            for layer, gates, before in zip(inputs.layers, kept[::3], kept[1::3], strict=True)
        ]
        self.products = [prepare(layer.input.T, None, kept[1].dtype) for layer in inputs.layers]

    def back(self, i: int, d_top: Tensor | None) -> Tensor:
        """From the gradient of the top's h [B, H] to that of the context, or of what was fed back."""
        rows = slice(i * self.batch, (i + 1) * self.batch)
        d_output = d_top
        for number in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[number]
            if d_output is not None:
                layer.d_state[0] += d_output
            d_output = self.products[number](layer.back(rows))
            if number > 0 and self.dropout:
                d_output = d_output * self.dropout[number - 1][rows]
        assert d_output is not None
        return d_output

    def weights(self, inputs: _Inputs, late: Tensor) -> list[Tensor | None]:
        """The gradients of all layers' weights; `late` [T B, …] is what the first layer read."""
        gradients: list[Tensor | None] = []
        read = late
        for number, (layer, weights) in enumerate(zip(self.layers, inputs.layers, strict=True)):
            bias = None if weights.input_bias is None else layer.d_input.sum(dim=0, dtype=layer.kept.dtype)
            gradients += [outer(layer.d_input, read), bias, *layer.weights()]
            read = self.outputs[number]
            if self.dropout and number < len(self.dropout):
                read = read * self.dropout[number]
        return gradients


class _Loop(torch.autograd.Function):
    """`attend_and_step`, and the way back through it."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States, contexts, weights."""
        inputs = _inputs(plan, tensors)
        ahead, memory = inputs.ahead, inputs.memory
        dtype = ahead.dtype
        with torch.autocast(ahead.device.type, enabled=False):
            stack = _Stack(plan, inputs, dtype)
            scoring = Scoring(plan.temperature, *inputs.scoring_tensors)
            attend = Attend(scoring, memory, inputs.keys, inputs.mask, len(ahead), dtype)
            walk = _bahdanau if inputs.combine is None else _luong
            states, own = walk(stack, attend, inputs.combine)
        if plan.keep:
            layers = [part for layer in stack.layers for part in (layer.kept, layer.before, layer.outputs)]
            ctx.save_for_backward(*tensors, attend.queries, attend.weights, attend.contexts, own, *layers)
        ctx.plan, ctx.count = plan, len(tensors)
        ctx.set_materialize_grads(False)
        return states, attend.contexts, attend.weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_states: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """The gradients of all inputs."""
        plan: _Plan = ctx.plan
        inputs = _inputs(plan, ctx.saved_tensors[: ctx.count])
        queries, weights, contexts, own, *layers = ctx.saved_tensors[ctx.count :]
        with torch.autocast(weights.device.type, enabled=False):
            stack = _StackBack(plan, inputs, layers, inputs.state[-1][0])
            scoring = Scoring(plan.temperature, *inputs.scoring_tensors)
            attend = AttendBack(scoring, inputs.memory, inputs.keys, queries, weights, contexts.dtype)
            walk = _bahdanau_back if inputs.combine is None else _luong_back
            late, asked, d_combine = walk(
                stack, attend, inputs, contexts, own, (d_states, d_contexts, d_weights)
            )
            d_memory, d_keys = attend.memories()
            d_layers = stack.weights(inputs, late)
            d_scoring = attend.parameters(asked)
        d_ahead = stack.layers[0].d_input.view_as(inputs.ahead)
        d_state = [part for layer in stack.layers for part in layer.d_state]
        nothing = [None] * len(inputs.dropout)
        return None, d_ahead, d_memory, d_keys, None, *d_scoring, d_combine, *d_layers, *d_state, *nothing


External = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Gradients of the states, contexts and weights that were returned, each [T, B, …]."""


def _bahdanau(stack: _Stack, attend: Attend, _: Tensor | None) -> tuple[Tensor, Tensor | None]:
    top = stack.layers[-1].state[0].to(attend.contexts.dtype)  # [B, H]
    for i in range(len(attend.queries)):
        top = stack.step(i, attend.step(i, top))
    return stack.layers[-1].outputs.view(-1, *top.shape), None


def _bahdanau_back(
    stack: _StackBack,
    attend: AttendBack,
    inputs: _Inputs,
    contexts: Tensor,
    own: Tensor,
    external: External,
) -> tuple[Tensor, Tensor, None]:
    d_states, d_contexts, d_weights = external
    for i in reversed(range(len(contexts))):
        attend.d_contexts[i] = stack.back(i, None if d_states is None else d_states[i])
        if d_contexts is not None:
            attend.d_contexts[i] += d_contexts[i]
        stack.layers[-1].d_state[0] += attend.back(i, None if d_weights is None else d_weights[i])
    asked = stack.layers[-1].before.view(len(contexts), stack.batch, -1)  # [T, B, H]
    return contexts.flatten(0, 1), asked, None


def _luong(stack: _Stack, attend: Attend, combine: Tensor | None) -> tuple[Tensor, Tensor | None]:
    assert combine is not None
    T, B, D = attend.contexts.shape
    H = len(combine)
    joined = attend.contexts.new_empty(T, B, D + H)  # [c; s]
    states = attend.contexts.new_empty(T, B, H)
    mix = prepare(combine, None, states.dtype)
    feed = states.new_zeros(B, H)
    for i in range(T):
        top = stack.step(i, feed)
        torch.cat([attend.step(i, top), top], dim=1, out=joined[i])
        feed = states[i].copy_(tanh_(mix(joined[i])))
    return states, states


def _luong_back(
    stack: _StackBack,
    attend: AttendBack,
    inputs: _Inputs,
    contexts: Tensor,
    own: Tensor,
    external: External,
) -> tuple[Tensor, Tensor, Tensor]:
    assert inputs.combine is not None
    d_states, d_contexts, d_weights = external
    T, B, D = contexts.shape
    mix = prepare(inputs.combine.T, None, own.dtype)
    d_mixed = torch.empty_like(own)  # [T, B, H], of what goes into tanh
    d_feed = torch.zeros_like(own[0])
    for i in reversed(range(T)):
        d_state = d_feed if d_states is None else d_feed + d_states[i]
        torch.ops.aten.tanh_backward.grad_input(d_state, own[i], grad_input=d_mixed[i])
        d_context, d_top = mix(d_mixed[i]).tensor_split([D], dim=1)
        attend.d_contexts[i] = d_context if d_contexts is None else d_context + d_contexts[i]
        d_feed = stack.back(i, d_top + attend.back(i, None if d_weights is None else d_weights[i]))
    tops = stack.outputs[-1].view(T, B, -1)
    fed = torch.cat([torch.zeros_like(own[:1]), own[:-1]])  # [T, B, H]
    joined = torch.cat([contexts, tops], dim=2).flatten(0, 1)
    return fed.flatten(0, 1), tops, outer(d_mixed.flatten(0, 1), joined)
