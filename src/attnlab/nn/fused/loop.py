"""The attentional loop over a whole target, in Bahdanau's order and in Luong's, and the way back through it.

Every step writes its tensors to buffers of all T steps, and reads only the sentences that have not ended. On
the way back a step computes the gradients of its gates and queries and nothing else: the gradient of a weight
is one product over the N rows of all steps, after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnlab.nn.fused.attend import Attend, AttendBack, Scores
from attnlab.nn.fused.layer import Layer, LayerBack, tanh_, widest
from attnlab.nn.fused.linear import outer, prepare
from attnlab.nn.fused.rows import Rows


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
    rows: Rows
    keep: bool


class _Inputs(NamedTuple):
    """All tensors, with gradients or without."""

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
        """As in `Scores`."""
        return self.energy, self.query, self.query_bias


class Loop:
    """A whole target to be read, from the first step on as far as its tokens are found one by one.

    ::

        loop = Loop(…)
        loop.step(ahead_0), loop.step(ahead_1), …      as many as are wanted, none by default
        loop.finish(ahead)                             the remaining steps, and the way back through all

    Args:
        kind: "lstm" or "gru".
        layers: each layer's weights.
        state: each layer's h (and c) to start from, [B, H].
        scoring: how the attention scores.
        memory: [B, S, D].
        keys: [B, S, A].
        mask: [B, S], True at real positions.
        rows: that each of the T steps reads.
        combine: W [H, D + H] of h̃ = tanh(W [c; s]) in Luong's order with input feeding, where h̃ is what the
            first layer reads; None for Bahdanau's order, where it reads the context.
        dropout: for each layer above the first, what its input is multiplied by, [N, H]; or nothing.
    """

    def __init__(
        self,
        kind: str,
        layers: Sequence[Weights],
        state: Sequence[Sequence[Tensor]],
        scoring: Scores,
        memory: Tensor,
        keys: Tensor,
        mask: Tensor,
        rows: Rows,
        *,
        combine: Tensor | None = None,
        dropout: Sequence[Tensor] = (),
    ) -> None:
        keep = torch.is_grad_enabled()
        self._plan = _Plan(kind, len(layers), len(state[0]), scoring.temperature, rows, keep)
        self._tensors = [memory, keys, mask, scoring.energy, scoring.weight, scoring.bias, combine]
        self._tensors += [part for layer in layers for part in layer]
        self._tensors += [part for layer in state for part in layer]
        self._tensors += dropout
        self._walk: _Walk | None = None

    @torch.no_grad()
    def step(self, ahead: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Read a token of the n sentences that go on, whose W x + b in the first layer [≥ n, gates] is known.

        Returns:
            The state [n, H], the context [n, D] and the weights [n, S], from which no gradient comes back.
        """
        if self._walk is None:
            self._walk = _Walk(self._plan, _inputs(self._plan, self._tensors), ahead.dtype)
        return self._walk.step(ahead)

    def finish(self, ahead: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Read the rest.

        Args:
            ahead: [N, gates]: W x + b of all embedded tokens, equal to those that were stepped through.

        Returns:
            States [T, B, H] (h̃ in Luong's order), contexts [T, B, D] and weights [T, B, S], zeros where a
            sentence has ended.
        """
        outputs: tuple[Tensor, Tensor, Tensor] = _Loop.apply(  # type: ignore[no-untyped-call]
            self._plan, self._walk, ahead, *self._tensors
        )
        return outputs


def _inputs(plan: _Plan, tensors: Sequence[Any]) -> _Inputs:
    """The tensors by name, as `Loop` puts them one after the other."""
    memory, keys, mask, energy, query, query_bias, combine, *rest = tensors
    layers = [Weights(*rest[4 * layer : 4 * layer + 4]) for layer in range(plan.layers)]
    rest = rest[4 * plan.layers :]
    state = [tuple(rest[plan.states * layer :][: plan.states]) for layer in range(plan.layers)]
    dropout = rest[plan.states * plan.layers :]
    return _Inputs(memory, keys, mask, energy, query, query_bias, combine, layers, state, dropout)


class _Stack:
    """The layers, forward."""

    def __init__(self, plan: _Plan, inputs: _Inputs, dtype: torch.dtype) -> None:
        self.rows = plan.rows
        self.dropout = inputs.dropout
        self.products = [prepare(layer.input, layer.input_bias, dtype) for layer in inputs.layers]
        self.layers = [
            Layer(plan.kind, layer.state, layer.state_bias, state, plan.rows.total, dtype, keep=plan.keep)
            for layer, state in zip(inputs.layers, inputs.state, strict=True)
        ]

    def step(self, i: int, ahead: Tensor, late: Tensor) -> Tensor:
        """The top's h [n, H], of a step's W x + b [n, gates] and its context, or what is fed back, [n, …]."""
        rows = self.rows.slices[i]
        gates = torch.add(self.products[0](late), ahead)  # in fp32 or wider, as they are ahead
        output = self.layers[0].step(rows, gates)
        for number, layer in enumerate(self.layers[1:]):
            below = output * self.dropout[number][rows] if self.dropout else output
            output = layer.step(rows, self.products[number + 1](below))
        return output


class _StackBack:
    """The way back through the layers."""

    def __init__(self, plan: _Plan, inputs: _Inputs, kept: Sequence[Tensor]) -> None:
        self.rows = plan.rows
        self.dropout = inputs.dropout
        self.outputs = kept[2::3]
        nothing = [None] * plan.states
        shape = (plan.rows.batch, kept[1].size(1))
        self.layers = [
            LayerBack(plan.kind, layer.state, gates, before, nothing, shape)
            for layer, gates, before in zip(inputs.layers, kept[::3], kept[1::3], strict=True)
        ]
        self.products = [prepare(layer.input.T, None, kept[1].dtype) for layer in inputs.layers]

    def back(self, i: int, d_top: Tensor | None) -> Tensor:
        """From the gradient of the top's h [n, H] to that of the context, or of what was fed back."""
        rows = self.rows.slices[i]
        d_output = d_top
        for number in range(len(self.layers) - 1, -1, -1):
            layer = self.layers[number]
            if d_output is not None:
                layer.d_state[0][: len(d_output)] += d_output
            d_output = self.products[number](layer.back(rows))
            if number > 0 and self.dropout:
                d_output = d_output * self.dropout[number - 1][rows]
        assert d_output is not None
        return d_output

    def weights(self, inputs: _Inputs, late: Tensor) -> list[Tensor | None]:
        """The gradients of all layers' weights; `late` [N, …] is what the first layer read."""
        gradients: list[Tensor | None] = []
        read = late
        for number, (layer, weights) in enumerate(zip(self.layers, inputs.layers, strict=True)):
            bias = None if weights.input_bias is None else layer.d_input.sum(dim=0, dtype=layer.kept.dtype)
            gradients += [outer(layer.d_input, read), bias, *layer.weights()]
            read = self.outputs[number]
            if self.dropout and number < len(self.dropout):
                read = read * self.dropout[number]
        return gradients


class _Walk:
    """Forward through the loop: step after step, each into its rows of the buffers of all."""

    def __init__(self, plan: _Plan, inputs: _Inputs, dtype: torch.dtype) -> None:
        self.rows = plan.rows
        with torch.autocast(inputs.memory.device.type, enabled=False):
            self.stack = _Stack(plan, inputs, dtype)
            scoring = Scores(plan.temperature, *inputs.scoring_tensors)
            steps = len(plan.rows.counts)
            self.attend = Attend(scoring, inputs.memory, inputs.keys, inputs.mask, steps, dtype)
            if inputs.combine is None:
                self.combine = None
                self.top = self.stack.layers[-1].state[0].to(dtype)  # [B, H]
            else:
                self.combine = prepare(inputs.combine, None, dtype)
                size = len(inputs.combine)
                self.mixed = inputs.memory.new_empty(plan.rows.total, size, dtype=dtype)  # h̃
                self.top = self.mixed.new_zeros(plan.rows.batch, size)  # h̃_0
        self.done = 0

    @property
    def states(self) -> Tensor:
        """What every step returned, [N, H]."""
        return self.stack.layers[-1].outputs if self.combine is None else self.mixed

    def step(self, ahead: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From W x + b [≥ n, gates]; returns the state [n, H], the context [n, D] and the weights [n, S]."""
        i, rows = self.done, self.rows.slices[self.done]
        n = self.rows.counts[i]
        with torch.autocast(ahead.device.type, enabled=False):
            ahead = ahead[:n].to(widest(ahead.dtype))
            if self.combine is None:
                context = self.attend.step(i, self.top[:n])
                self.top = self.stack.step(i, ahead, context)
            else:
                top = self.stack.step(i, ahead, self.top[:n])
                context = self.attend.step(i, top)
                mixed = tanh_(self.combine(torch.cat([context, top], dim=1)))  # h̃ [n, H]
                self.top = self.mixed[rows].copy_(mixed)
        self.done += 1
        return self.top, context, self.attend.weights[i, :n]


class _Loop(torch.autograd.Function):
    """`Loop.finish`, and the way back through the loop."""

    @staticmethod
    def forward(
        ctx: Any, plan: _Plan, walk: _Walk | None, ahead: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """States, contexts, weights."""
        if walk is None:
            walk = _Walk(plan, _inputs(plan, tensors), ahead.dtype)
        for rows in plan.rows.slices[walk.done :]:
            walk.step(ahead[rows])
        attend, own = walk.attend, walk.states
        if plan.keep:
            layers = [
                part for layer in walk.stack.layers for part in (layer.kept, layer.before, layer.outputs)
            ]
            ctx.save_for_backward(*tensors, attend.queries, attend.weights, attend.contexts, own, *layers)
        ctx.plan, ctx.count = plan, len(tensors)
        ctx.set_materialize_grads(False)
        return plan.rows.pad(own), attend.contexts, attend.weights

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
            stack = _StackBack(plan, inputs, layers)
            scoring = Scores(plan.temperature, *inputs.scoring_tensors)
            attend = AttendBack(scoring, inputs.memory, inputs.keys, queries, weights, contexts.dtype)
            walk = _bahdanau_back if inputs.combine is None else _luong_back
            late, asked, d_combine = walk(
                stack, attend, inputs, contexts, own, (d_states, d_contexts, d_weights)
            )
            d_memory, d_keys = attend.memories()
            d_layers = stack.weights(inputs, late)
            d_scoring = attend.parameters(plan.rows, asked)
        d_ahead = stack.layers[0].d_input
        d_state = [part for layer in stack.layers for part in layer.d_state]
        nothing = [None] * len(inputs.dropout)
        gradients = (d_ahead, d_memory, d_keys, None, *d_scoring, d_combine, *d_layers, *d_state, *nothing)
        return None, None, *gradients


External = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Gradients of the states, contexts and weights that were returned, each [T, B, …]."""


def _bahdanau_back(
    stack: _StackBack,
    attend: AttendBack,
    inputs: _Inputs,
    contexts: Tensor,
    own: Tensor,
    external: External,
) -> tuple[Tensor, Tensor, None]:
    d_states, d_contexts, d_weights = external
    for i, n in reversed(list(enumerate(stack.rows.counts))):
        d_context = attend.d_contexts[i, :n]
        d_context.copy_(stack.back(i, None if d_states is None else d_states[i, :n]))
        if d_contexts is not None:
            d_context += d_contexts[i, :n]
        d_top = attend.back(i, n, None if d_weights is None else d_weights[i])
        stack.layers[-1].d_state[0][:n] += d_top
    return stack.rows.pack(contexts), stack.layers[-1].before, None


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
    rows, D = stack.rows, contexts.size(2)
    mix = prepare(inputs.combine.T, None, own.dtype)
    d_mixed = torch.empty_like(own)  # [N, H], of what goes into tanh
    d_feed = own.new_zeros(rows.batch, own.size(1))
    for i, n in reversed(list(enumerate(rows.counts))):
        here = rows.slices[i]
        d_state = d_feed[:n] if d_states is None else d_feed[:n] + d_states[i, :n]
        torch.ops.aten.tanh_backward.grad_input(d_state, own[here], grad_input=d_mixed[here])
        d_context, d_top = mix(d_mixed[here]).tensor_split([D], dim=1)
        attend.d_contexts[i, :n] = d_context if d_contexts is None else d_context + d_contexts[i, :n]
        d_top = d_top + attend.back(i, n, None if d_weights is None else d_weights[i])
        d_feed[:n] = stack.back(i, d_top)
    tops = stack.outputs[-1]
    states = rows.pad(own)
    fed = rows.pack(torch.cat([torch.zeros_like(states[:1]), states[:-1]]))  # [N, H]
    joined = torch.cat([rows.pack(contexts), tops], dim=1)
    return fed, tops, outer(d_mixed, joined)
